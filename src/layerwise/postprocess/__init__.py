"""What is fitted on embeddings and changes them: whitening, flow, removed components."""

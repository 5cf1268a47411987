"""One loop for every kind of training: a job provides data, student and scores; the loop trains, resumes and saves."""

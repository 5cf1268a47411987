"""Layer mixes: how the views of a sentence's layers become one embedding.

A mix is a small value object: it can be printed, parsed and compared, and knows which layers it needs.

>>> mix = parse_mix("1-3,12 @ mean")
>>> mix
LayerSet('1-3,12 @ mean')
>>> mix.resolve(12).layers
(1, 2, 3, 12)
>>> str(parse_mix("last-4").resolve(12))
'9-12 @ mean'
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.mixes.attention import AttentionNetwork, LayerAttention
    from layerwise.mixes.base import Mix
    from layerwise.mixes.concat import LayerConcat
    from layerwise.mixes.join import LayerJoin
    from layerwise.mixes.layer_set import LayerSet
    from layerwise.mixes.parse import LayerMix, parse_mix
    from layerwise.mixes.views import SCALES, Centres, LayerViews, Less, Scale, fit_centres
    from layerwise.mixes.weights import LayerWeights
    from layerwise.mixes.wk import LayerWk, without_last_token

__getattr__, __dir__, __all__ = door(__name__, __file__)

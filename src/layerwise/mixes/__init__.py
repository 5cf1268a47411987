"""Layer mixes: how the views of a sentence's layers become one embedding.

A mix is a small value object: it can be printed, parsed and compared, and knows which layers it needs.

>>> mix = parse_mix("1-3,12 @ mean")
>>> mix
Mean('1-3,12 @ mean')
>>> mix.resolve(12).layers
(1, 2, 3, 12)
>>> str(parse_mix("last-4").resolve(12))
'9-12 @ mean'
"""

from typing import TYPE_CHECKING

from layerwise.doors import door

if TYPE_CHECKING:
    from layerwise.mixes.attention import Attention, AttentionNetwork
    from layerwise.mixes.centres import Centres, fit_centres
    from layerwise.mixes.concat import Concat
    from layerwise.mixes.mean import Mean
    from layerwise.mixes.mix import SCALES, Fitted, Mix, Remove, Scale, View
    from layerwise.mixes.parse import parse_mix
    from layerwise.mixes.wk import SbertWk, without_last_token

__getattr__, __dir__, __all__ = door(__name__, __file__)

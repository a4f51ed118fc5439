"""Images of which the made texts are true: drawn by a model or by the world, chosen by a scorer.

    pairs file -> candidates (diffusion or world) -> choose -> pairs file with text_images

`nearest` needs no generator: it finds similar real images as hard negative images. `renderings` are
hard positives of images: changed, or drawn again, without a change of what the captions say.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The command line: one file per verb or subject; parse, call, print. Knows everything.

Exit status: 0 done; 1 an error a user can mend; 2 wrong usage; 3 done, but cases were left out
(unless --allow-missing); 4 published values were not confirmed (verify --strict); 130 interrupted;
143 terminated.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

from .site import BoardOptions as BoardOptions, make_board as make_board

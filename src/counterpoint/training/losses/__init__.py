"""The losses: pure functions of the vectors of a batch, each with its formula and paper."""

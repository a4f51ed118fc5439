"""Refinement: keep the negatives that a model which sees no image cannot tell from captions.

`blind_scores` (with `score_tables`) says where scores come from, `selection` keeps the best texts,
`adversarial` (with `scaling`) balances the rest, `report` says what that did, and `refining` goes
through a pairs file with all of them.
"""

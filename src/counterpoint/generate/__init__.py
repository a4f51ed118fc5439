"""Making hard positives and hard negatives, from captions to a benchmark or a training set.

captions -> rules or language models -> checks -> pairs file -> refine -> images -> export
"""

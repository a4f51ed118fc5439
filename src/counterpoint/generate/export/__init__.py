"""From pairs to something that others read: a benchmark, a training set, a data set to publish.

pairs files -> groups (a caption with all its texts) -> benchmark, training
pairs files -> shards, card, Croissant                  hub
"""

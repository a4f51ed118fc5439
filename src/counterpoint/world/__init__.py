"""The synthetic world: the embedded default, where the truth of every caption is known.

`lexicon` holds the words, `scene` the scene graph, `grammar` captions as statements (written, read
back and judged against a scene), `draw` the pictures, `edits` the hard positives and negatives.
"""

from .arrays import (
    SCENE_DRAWS as SCENE_DRAWS,
    STATEMENT_DRAWS as STATEMENT_DRAWS,
    Scenes as Scenes,
    Tokenize as Tokenize,
    WorldTokens as WorldTokens,
    draw_false as draw_false,
    draw_plain as draw_plain,
    draw_scenes as draw_scenes,
    draw_statements as draw_statements,
    exchanged_words as exchanged_words,
    holds_each as holds_each,
    joined_words as joined_words,
    reworded as reworded,
    statement_words as statement_words,
)
from .drawing import PIXELS as PIXELS, VERSION as VERSION, draw as draw, paint as paint
from .edits import (
    Edit as Edit,
    Edits as Edits,
    draw_edits as draw_edits,
    replacements as replacements,
    swaps as swaps,
)
from .grammar import (
    GrammarError as GrammarError,
    Phrase as Phrase,
    Statement as Statement,
    holds as holds,
    read as read,
    sample_caption as sample_caption,
)
from .renderings import CHANGES as CHANGES, keeps as keeps, rerender as rerender
from .scenes import (
    ATTRIBUTES as ATTRIBUTES,
    CONVERSE as CONVERSE,
    KINDS as KINDS,
    SHAPES as SHAPES,
    Scene as Scene,
    SceneCodeError as SceneCodeError,
    Thing as Thing,
    free_places as free_places,
    read_scene as read_scene,
    related as related,
    sample_scene as sample_scene,
)

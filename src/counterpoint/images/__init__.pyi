from .files import (
    TarMember as TarMember,
    decode as decode,
    expand_braces as expand_braces,
    file_content as file_content,
    read_member as read_member,
    tar_members as tar_members,
    tar_samples as tar_samples,
)
from .pictures import (
    LOOK as LOOK,
    MAX_RATIO as MAX_RATIO,
    Photographs as Photographs,
    Picture as Picture,
    Reader as Reader,
    by_photograph as by_photograph,
    look as look,
    look_of as look_of,
    photograph_id as photograph_id,
    photograph_names as photograph_names,
    same_looks as same_looks,
)
from .schemes import (
    PIECES as PIECES,
    PLAIN as PLAIN,
    cell_reference as cell_reference,
    member_reference as member_reference,
    scene_of as scene_of,
    scheme_of as scheme_of,
    shuffle_reference as shuffle_reference,
    world_reference as world_reference,
)

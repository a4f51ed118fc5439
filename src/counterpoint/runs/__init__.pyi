from .columns import Columns as Columns, columns_of as columns_of, gap as gap
from .comparison import Difference as Difference, compare as compare
from .folders import (
    FORMAT as FORMAT,
    Part as Part,
    Run as Run,
    RunWriter as RunWriter,
    file_digest as file_digest,
    find_runs as find_runs,
    load_run as load_run,
    question as question,
    read_manifest as read_manifest,
    refuse_other as refuse_other,
    save_run as save_run,
)
from .overlap import TrainedOn as TrainedOn
from .results import (
    Measured as Measured,
    Row as Row,
    as_json as as_json,
    fitting as fitting,
    measure as measure,
    members_in as members_in,
    rows as rows,
    side_by_side as side_by_side,
    undefined as undefined,
)
from .tables import (
    Comparison as Comparison,
    NumberTable as NumberTable,
    Results as Results,
    differences_note as differences_note,
    differences_table as differences_table,
    left_out_notes as left_out_notes,
    main_rows as main_rows,
    part_size as part_size,
    part_sizes as part_sizes,
    percent as percent,
    results_table as results_table,
)

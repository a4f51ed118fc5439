from .columns import Columns as Columns, columns_of as columns_of, gap as gap
from .comparison import Difference as Difference
from .folders import (
    FORMAT as FORMAT,
    file_digest as file_digest,
    find_runs as find_runs,
    question as question,
    read_manifest as read_manifest,
    refuse_other as refuse_other,
)
from .outcomes import (
    NO_OUTCOME as NO_OUTCOME,
    OUTCOMES as OUTCOMES,
    case_outcomes as case_outcomes,
    outcome_of_one as outcome_of_one,
)
from .part import (
    Part as Part,
    TrainedOn as TrainedOn,
    paired_rows as paired_rows,
    same_rows as same_rows,
)
from .results import (
    Measured as Measured,
    Row as Row,
    as_json as as_json,
    fitting as fitting,
    measure as measure,
    members_in as members_in,
    side_by_side as side_by_side,
    undefined as undefined,
)
from .run import (
    Run as Run,
    compare as compare,
    left_out_notes as left_out_notes,
    load_run as load_run,
    part_sizes as part_sizes,
    refuse_empty as refuse_empty,
    results_of as results_of,
    rows as rows,
    save_run as save_run,
)
from .sheets import Sheet as Sheet
from .tables import (
    Comparison as Comparison,
    NumberTable as NumberTable,
    Results as Results,
    difference_sheets as difference_sheets,
    differences_note as differences_note,
    differences_table as differences_table,
    main_differences as main_differences,
    main_rows as main_rows,
    part_size as part_size,
    percent as percent,
    results_table as results_table,
    ties_marked as ties_marked,
)

from .accuracy_tables import (
    MODE_WORDS as MODE_WORDS,
    accuracy_headline as accuracy_headline,
    accuracy_table as accuracy_table,
    difference_text as difference_text,
    interval_text as interval_text,
    remarks as remarks,
)
from .comparison_summary import (
    comparison_columns as comparison_columns,
    comparison_headline as comparison_headline,
    fullest_device as fullest_device,
)
from .comparison_text import (
    comparison_table as comparison_table,
    pace_lines as pace_lines,
)
from .eight_bit_tables import (
    compression_table as compression_table,
    crossing_lines as crossing_lines,
    crossing_words as crossing_words,
    eight_bit_headline as eight_bit_headline,
    shown_crossings as shown_crossings,
    speed_text as speed_text,
)
from .fidelity_text import (
    STUDY_SENTENCE as STUDY_SENTENCE,
    STUDY_TITLE as STUDY_TITLE,
    coverage_rows as coverage_rows,
    fidelity_cells as fidelity_cells,
    fidelity_headers as fidelity_headers,
    fidelity_headline as fidelity_headline,
    fidelity_lines as fidelity_lines,
    fidelity_tables as fidelity_tables,
)
from .layer_rows import (
    layer_table as layer_table,
)
from .likely_text import (
    expected_time as expected_time,
    likely_ends as likely_ends,
    undecided_line as undecided_line,
    winner_of as winner_of,
)
from .oracle_tables import (
    booking_line as booking_line,
    limit_lines as limit_lines,
    oracle_columns as oracle_columns,
    oracle_headline as oracle_headline,
    oracle_table as oracle_table,
    refused_lines as refused_lines,
    rows_in_order as rows_in_order,
)
from .rate_tiles import (
    money_words as money_words,
    rate_tiles as rate_tiles,
)
from .repeated_blocks import (
    repeated_blocks as repeated_blocks,
)
from .reproduced_values import (
    ReproducedValue as ReproducedValue,
    reproduced_headline as reproduced_headline,
    reproduced_values as reproduced_values,
)
from .size_text import (
    size_columns as size_columns,
    size_headline as size_headline,
    size_lines as size_lines,
    size_table as size_table,
    training_unit as training_unit,
)
from .sweep_columns import (
    column_label as column_label,
    column_unit as column_unit,
    fitting_columns as fitting_columns,
    is_answer as is_answer,
    is_whole as is_whole,
    reason_lines as reason_lines,
    sweep_table as sweep_table,
)
from .whatif_tables import (
    sensitivity_cells as sensitivity_cells,
    sensitivity_table as sensitivity_table,
    whatif_cells as whatif_cells,
    whatif_extremes as whatif_extremes,
    whatif_finding as whatif_finding,
    whatif_headers as whatif_headers,
    whatif_headline as whatif_headline,
    whatif_reason_lines as whatif_reason_lines,
    whatif_table as whatif_table,
    whatif_why_lines as whatif_why_lines,
)

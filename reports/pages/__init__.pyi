from .accuracy_page import (
    write_accuracy_page as write_accuracy_page,
)
from .comparison_page import (
    comparison_html as comparison_html,
    write_comparison_page as write_comparison_page,
)
from .decision_pages import (
    write_size_page as write_size_page,
    write_whatif_page as write_whatif_page,
)
from .eight_bit_page import (
    write_eight_bit_page as write_eight_bit_page,
)
from .fidelity_page import (
    fidelity_values as fidelity_values,
    write_fidelity_page as write_fidelity_page,
)
from .index_page import (
    check_no_other_page as check_no_other_page,
    found_results as found_results,
    index_html as index_html,
)
from .oracle_page import (
    write_oracle_page as write_oracle_page,
)
from .page_template import (
    packed_plotly as packed_plotly,
    template_text as template_text,
)
from .paper_pages import (
    computed_values as computed_values,
    write_paper_page as write_paper_page,
    write_reproduce_page as write_reproduce_page,
)
from .plan_page import (
    write_plan_pages as write_plan_pages,
)
from .streams_page import (
    streams_headline as streams_headline,
    streams_table as streams_table,
    write_streams_page as write_streams_page,
)
from .sweep_page import (
    write_sweep_page as write_sweep_page,
)
from .timeline_page import (
    write_timeline_page as write_timeline_page,
)
from .validation_page import (
    validation_headline as validation_headline,
    write_validation_page as write_validation_page,
)

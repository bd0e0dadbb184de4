from .cluster_view import (
    cluster_view as cluster_view,
)
from .draw_network import (
    strategy_drawing as strategy_drawing,
)
from .plan_view import (
    PlanView as PlanView,
)
from .timeline_layout import (
    TimelineRow as TimelineRow,
    side_by_side as side_by_side,
    timeline_rows as timeline_rows,
    with_members as with_members,
)
from .timeline_packing import (
    pack_timeline as pack_timeline,
)
from .timeline_page_data import (
    timeline_data as timeline_data,
)

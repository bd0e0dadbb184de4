from .analysis import (
    Analysis as Analysis,
    analyse as analyse,
)
from .compare_strategies import (
    compare as compare,
    layer_results as layer_results,
)
from .comparison import (
    Comparison as Comparison,
    LayerResult as LayerResult,
    StrategyResult as StrategyResult,
)
from .plan import (
    Plan as Plan,
    lower_plan as lower_plan,
    lowered as lowered,
    make_plan as make_plan,
)
from .plan_file import (
    load_plan as load_plan,
    save_plan as save_plan,
)

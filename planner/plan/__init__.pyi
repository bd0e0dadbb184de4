from .analysis import (
    Analysis as Analysis,
    analyse as analyse,
)
from .compare_strategies import (
    compare as compare,
)
from .comparison import (
    Comparison as Comparison,
    LayerResult as LayerResult,
    StrategyResult as StrategyResult,
)
from .lowered_plan import (
    cost_model_of as cost_model_of,
    lower_plan as lower_plan,
    lowered as lowered,
    plan_lowering as plan_lowering,
)
from .no_strategy_fits import (
    NoStrategyFitsError as NoStrategyFitsError,
)
from .pace import (
    Pace as Pace,
    pace_of as pace_of,
    pace_of_analysis as pace_of_analysis,
)
from .plan import (
    Plan as Plan,
)
from .plan_file import (
    load_plan as load_plan,
    save_plan as save_plan,
)
from .plan_request import (
    DTYPE_BYTES as DTYPE_BYTES,
    PlanRequest as PlanRequest,
    Precision as Precision,
    SyncAlgorithm as SyncAlgorithm,
)
from .planning import (
    SimulatedPlan as SimulatedPlan,
    make_plan as make_plan,
    simulated_plan as simulated_plan,
)
from .priced_strategy import (
    PricedStrategy as PricedStrategy,
    compared_model as compared_model,
    layer_results as layer_results,
    one_device_s as one_device_s,
    price_strategy as price_strategy,
    strategy_ladder as strategy_ladder,
    strategy_result as strategy_result,
)
from .training_rates import (
    TrainingRates as TrainingRates,
    training_rates as training_rates,
)

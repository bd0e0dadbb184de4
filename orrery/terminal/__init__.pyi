from .analysis_view import (
    analysis_values as analysis_values,
    print_analysis as print_analysis,
)
from .command_groups import (
    Commands as Commands,
)
from .exit_codes import (
    left_out as left_out,
    run_app as run_app,
)
from .options import (
    Batch as Batch,
    BatchNorm as BatchNorm,
    Cluster as Cluster,
    CompressActivations as CompressActivations,
    CompressGradients as CompressGradients,
    CompressWhere as CompressWhere,
    Device as Device,
    Engine as Engine,
    Exchange as Exchange,
    ExchangeOrder as ExchangeOrder,
    Json as Json,
    MicroBatches as MicroBatches,
    Model as Model,
    Numbers as Numbers,
    Optimizer as Optimizer,
    Page as Page,
    PlanFile as PlanFile,
    Recompute as Recompute,
    Refine as Refine,
    Schedule as Schedule,
    Seed as Seed,
    StageAt as StageAt,
    Stages as Stages,
    StandInCompute as StandInCompute,
    Strategies as Strategies,
    Strategy as Strategy,
    SubBatches as SubBatches,
    SubBatchFrom as SubBatchFrom,
    SubBatchOrder as SubBatchOrder,
    Threads as Threads,
    Trace as Trace,
    UpdateEach as UpdateEach,
    whole_number as whole_number,
)
from .output import (
    page_files as page_files,
    print_json as print_json,
    to_json as to_json,
    whole_file as whole_file,
)
from .progress import (
    progress_bar as progress_bar,
)
from .request_options import (
    takes_requests as takes_requests,
)
from .stored_plan import (
    open_plan as open_plan,
)
from .views import (
    cluster_row as cluster_row,
    comparison_values as comparison_values,
    configuration_rows as configuration_rows,
    model_values as model_values,
    plan_values as plan_values,
    print_pairs as print_pairs,
    print_rich as print_rich,
    print_table as print_table,
    print_width as print_width,
    replay_values as replay_values,
    row_values as row_values,
    told as told,
)

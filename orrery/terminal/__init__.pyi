from .analysis_view import (
    analysis_values as analysis_values,
    print_analysis as print_analysis,
)
from .command_groups import (
    CommandGroups as CommandGroups,
    GroupedCommand as GroupedCommand,
)
from .completion import (
    COMPLETERS as COMPLETERS,
    completion_script as completion_script,
)
from .execution_options import (
    ComparedConditions as ComparedConditions,
    ExecutionModel as ExecutionModel,
    PlannedConditions as PlannedConditions,
)
from .exit_codes import (
    left_out as left_out,
    run_app as run_app,
)
from .options import (
    BatchOption as BatchOption,
    ClusterOption as ClusterOption,
    EngineOption as EngineOption,
    JsonOption as JsonOption,
    ModelArgument as ModelArgument,
    PlanArgument as PlanArgument,
    PriceOption as PriceOption,
    StrategiesOption as StrategiesOption,
    TraceOption as TraceOption,
    price_of as price_of,
)
from .output import (
    Out as Out,
    out_files as out_files,
    out_option as out_option,
    output_file as output_file,
    print_json as print_json,
    to_json as to_json,
)
from .plan_view import (
    plan_headline as plan_headline,
    print_plan as print_plan,
    refusal_with_command as refusal_with_command,
    typed_options as typed_options,
)
from .progress import (
    progress_bar as progress_bar,
)
from .request_options import (
    takes_requests as takes_requests,
)
from .signals import (
    ENDED_BY as ENDED_BY,
    hear_signals as hear_signals,
    kept as kept,
)
from .stored_plan import (
    open_plan as open_plan,
)
from .views import (
    cluster_row as cluster_row,
    comparison_values as comparison_values,
    model_row as model_row,
    plan_values as plan_values,
    print_pairs as print_pairs,
    print_rich as print_rich,
    print_table as print_table,
    print_width as print_width,
    printed_values as printed_values,
    profile_row as profile_row,
    replay_values as replay_values,
    row_values as row_values,
)

from .diagnosis import (
    HANG_CHECKS as HANG_CHECKS,
    Diagnosis as Diagnosis,
    Ending as Ending,
    FailureDetector as FailureDetector,
    Patience as Patience,
    ending as ending,
)
from .launcher import (
    LaunchSpec as LaunchSpec,
    RankHosts as RankHosts,
    launch as launch,
    threads_of as threads_of,
)
from .rank_environment import (
    INTERFACE_VARIABLE as INTERFACE_VARIABLE,
    NO_SECRET_VARIABLE as NO_SECRET_VARIABLE,
    SECRET_VARIABLE as SECRET_VARIABLE,
    RankEnvironment as RankEnvironment,
    local_ranks as local_ranks,
    rank_environment as rank_environment,
)
from .rank_network import (
    check_network as check_network,
)
from .rank_process import (
    failed as failed,
    group_timeout as group_timeout,
    process_group as process_group,
    serve as serve,
)
from .rank_store import (
    attempt as attempt,
    run_key as run_key,
)
from .scratch_folders import (
    scratch_folder as scratch_folder,
)
from .signed_store import (
    SignatureError as SignatureError,
    SignedStore as SignedStore,
)
from .status_board import (
    NEW_ROW as NEW_ROW,
    RankRow as RankRow,
    RankState as RankState,
    RankStatus as RankStatus,
    read_row as read_row,
)
from .status_progress import (
    loss_of as loss_of,
    reporter as reporter,
)
from .supervisor import (
    RankFailure as RankFailure,
)
from .system_processes import (
    out_of_memory_kills as out_of_memory_kills,
)

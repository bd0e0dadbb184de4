from .last_causes import (
    before_in_streams as before_in_streams,
    last_causes as last_causes,
)
from .path_analysis import (
    CriticalStep as CriticalStep,
    critical_path as critical_path,
)
from .timeline import (
    alone_s as alone_s,
    busiest_resource as busiest_resource,
    lower_bound as lower_bound,
    resource_use as resource_use,
    union as union,
)

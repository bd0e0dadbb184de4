from .codec_probe import (
    CodecProbe as CodecProbe,
    CodecRow as CodecRow,
)
from .device_probe import (
    device_name as device_name,
)
from .layer_probe import (
    LayerProbe as LayerProbe,
)
from .measured_rows import (
    ProbeRow as ProbeRow,
    TimeSamples as TimeSamples,
    over_ranks as over_ranks,
)
from .parts_to_measure import (
    ProbePart as ProbePart,
    parts_of as parts_of,
    tensor_bytes as tensor_bytes,
)
from .probe_run import (
    Probed as Probed,
    probe as probe,
)
from .probe_settings import (
    ProbeSettings as ProbeSettings,
)
from .probed_profile import (
    write_with_codecs as write_with_codecs,
)

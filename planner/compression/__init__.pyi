from .data_types import (
    SCALE_BYTES as SCALE_BYTES,
    Compression as Compression,
    check_codec_times as check_codec_times,
    compression as compression,
    compression_names as compression_names,
)
from .settings import (
    AUTO as AUTO,
    LIBRARY as LIBRARY,
    UNCOMPRESSED as UNCOMPRESSED,
    CompressionSettings as CompressionSettings,
    can_synchronise as can_synchronise,
    check_gradient_sync as check_gradient_sync,
    compressed_of as compressed_of,
)

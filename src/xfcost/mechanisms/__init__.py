"""The token mixers: fields are their YAML schema, docstrings their formulas, methods their pattern and cost."""

from xfcost.formulas.component import Mixer
from xfcost.mechanisms.average_pool import AveragePool
from xfcost.mechanisms.axial import Axial
from xfcost.mechanisms.basic import Basic
from xfcost.mechanisms.block_sparse import BlockSparse
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.mechanisms.bottleneck import Bottleneck
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.class_attention import ClassAttention
from xfcost.mechanisms.compressed import Compressed
from xfcost.mechanisms.compressive import Compressive
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.conv_attention import ConvAttention
from xfcost.mechanisms.conv_mlp import ConvMlp
from xfcost.mechanisms.conv_module import ConvModule
from xfcost.mechanisms.convnext import ConvNext
from xfcost.mechanisms.cross import Cross
from xfcost.mechanisms.depthwise_conv import DepthwiseConv
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.funnel import Funnel
from xfcost.mechanisms.global_local import GlobalLocal
from xfcost.mechanisms.gmlp import Gmlp
from xfcost.mechanisms.gru import Gru
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.inducing import Inducing
from xfcost.mechanisms.inverted_residual import InvertedResidual
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.local_relation import LocalRelation
from xfcost.mechanisms.low_rank import LowRank
from xfcost.mechanisms.lsh import Lsh
from xfcost.mechanisms.lstm import Lstm
from xfcost.mechanisms.mamba import Mamba
from xfcost.mechanisms.mamba2 import Mamba2
from xfcost.mechanisms.mla import Mla
from xfcost.mechanisms.non_local import NonLocal
from xfcost.mechanisms.nystrom import Nystrom
from xfcost.mechanisms.pooling import Pooling
from xfcost.mechanisms.relative import Relative
from xfcost.mechanisms.retention import Retention
from xfcost.mechanisms.rnn import Rnn
from xfcost.mechanisms.routing import Routing
from xfcost.mechanisms.rwkv_channel import RwkvChannel
from xfcost.mechanisms.rwkv_time import RwkvTime
from xfcost.mechanisms.sagan import Sagan
from xfcost.mechanisms.sinkhorn import Sinkhorn
from xfcost.mechanisms.sliding import Sliding
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.spatial_reduction import SpatialReduction
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.mechanisms.token_linear import TokenLinear
from xfcost.mechanisms.token_mlp import TokenMlp
from xfcost.mechanisms.unfolded import Unfolded
from xfcost.mechanisms.window import Window
from xfcost.mechanisms.window_pooling import WindowPooling

# The written list: a mechanism is known when it stands here. The contract tests read it.
MECHANISMS: tuple[type[Mixer], ...] = (
    Full,
    Mla,
    ClassAttention,
    Cross,
    Window,
    Sliding,
    GlobalLocal,
    BlockSparse,
    Inducing,
    Axial,
    Blockwise,
    Relative,
    Lsh,
    Kernel,
    Compressive,
    LowRank,
    Routing,
    Nystrom,
    Compressed,
    Funnel,
    Synthesizer,
    Sparse,
    Sinkhorn,
    NonLocal,
    Sagan,
    TokenMlp,
    TokenLinear,
    Gmlp,
    AveragePool,
    ConvNext,
    SpatialReduction,
    Bottleneck,
    Basic,
    LocalAttention,
    LocalRelation,
    ConvMlp,
    DepthwiseConv,
    ConvModule,
    ConvAttention,
    InvertedResidual,
    Unfolded,
    Rnn,
    Lstm,
    Gru,
    Conv,
    ByteNet,
    Mamba,
    Mamba2,
    RwkvTime,
    RwkvChannel,
    Retention,
    Hyena,
    Pooling,
    WindowPooling,
)
Mechanism = (
    Full
    | Mla
    | ClassAttention
    | Cross
    | Window
    | Sliding
    | GlobalLocal
    | BlockSparse
    | Inducing
    | Axial
    | Blockwise
    | Relative
    | Lsh
    | Kernel
    | Compressive
    | LowRank
    | Routing
    | Nystrom
    | Compressed
    | Funnel
    | Synthesizer
    | Sparse
    | Sinkhorn
    | NonLocal
    | Sagan
    | TokenMlp
    | TokenLinear
    | Gmlp
    | AveragePool
    | ConvNext
    | SpatialReduction
    | Bottleneck
    | Basic
    | LocalAttention
    | LocalRelation
    | ConvMlp
    | DepthwiseConv
    | ConvModule
    | ConvAttention
    | InvertedResidual
    | Unfolded
    | Rnn
    | Lstm
    | Gru
    | Conv
    | ByteNet
    | Mamba
    | Mamba2
    | RwkvTime
    | RwkvChannel
    | Retention
    | Hyena
    | Pooling
    | WindowPooling
)

__all__ = [
    "MECHANISMS",
    "AveragePool",
    "Axial",
    "Basic",
    "BlockSparse",
    "Blockwise",
    "Bottleneck",
    "ByteNet",
    "ClassAttention",
    "Compressed",
    "Compressive",
    "Conv",
    "ConvAttention",
    "ConvMlp",
    "ConvModule",
    "ConvNext",
    "Cross",
    "DepthwiseConv",
    "Full",
    "Funnel",
    "GlobalLocal",
    "Gmlp",
    "Gru",
    "Hyena",
    "Inducing",
    "InvertedResidual",
    "Kernel",
    "LocalAttention",
    "LocalRelation",
    "LowRank",
    "Lsh",
    "Lstm",
    "Mamba",
    "Mamba2",
    "Mechanism",
    "Mla",
    "NonLocal",
    "Nystrom",
    "Pooling",
    "Relative",
    "Retention",
    "Rnn",
    "Routing",
    "RwkvChannel",
    "RwkvTime",
    "Sagan",
    "Sinkhorn",
    "Sliding",
    "Sparse",
    "SpatialReduction",
    "Synthesizer",
    "TokenLinear",
    "TokenMlp",
    "Unfolded",
    "Window",
    "WindowPooling",
]

"""The torch twin of every page of `xfcost.mechanisms`, under the same file name."""

from torch import nn

from xfcost.live.mechanisms.average_pool import AveragePooling
from xfcost.live.mechanisms.axial import AxialAttention
from xfcost.live.mechanisms.basic import BasicBlock
from xfcost.live.mechanisms.block_sparse import BlockSparseAttention
from xfcost.live.mechanisms.blockwise import BlockwiseAttention
from xfcost.live.mechanisms.bottleneck import BottleneckBlock
from xfcost.live.mechanisms.class_attention import ClassTokenAttention
from xfcost.live.mechanisms.compressed import CompressedAttention
from xfcost.live.mechanisms.compressive import CompressiveAttention
from xfcost.live.mechanisms.conv import ByteNetBlock, ConvolutionLayer
from xfcost.live.mechanisms.conv_attention import ConvolutionalAttention
from xfcost.live.mechanisms.conv_mlp import ConvolutionalFeedForward
from xfcost.live.mechanisms.conv_module import ConvolutionModule
from xfcost.live.mechanisms.convnext import ConvNextBlock
from xfcost.live.mechanisms.cross import CrossAttention
from xfcost.live.mechanisms.depthwise_conv import DepthwiseConvolution
from xfcost.live.mechanisms.full import FullAttention
from xfcost.live.mechanisms.funnel import FunnelAttention
from xfcost.live.mechanisms.global_local import GlobalLocalAttention
from xfcost.live.mechanisms.gmlp import GmlpBlock
from xfcost.live.mechanisms.hyena import HyenaOperator
from xfcost.live.mechanisms.inducing import InducedAttention
from xfcost.live.mechanisms.inverted_residual import InvertedResidualBlock
from xfcost.live.mechanisms.kernel import KernelAttention
from xfcost.live.mechanisms.local_attention import LocalSelfAttention
from xfcost.live.mechanisms.local_relation import LocalRelationLayer
from xfcost.live.mechanisms.low_rank import LowRankAttention
from xfcost.live.mechanisms.lsh import LshAttention
from xfcost.live.mechanisms.mamba import MambaBlock
from xfcost.live.mechanisms.mamba2 import Mamba2Block
from xfcost.live.mechanisms.mla import LatentAttention
from xfcost.live.mechanisms.non_local import NonLocalBlock
from xfcost.live.mechanisms.nystrom import NystromAttention
from xfcost.live.mechanisms.pooling import PoolingAttention
from xfcost.live.mechanisms.recurrent import RecurrentLayer
from xfcost.live.mechanisms.relative import RelativeAttention
from xfcost.live.mechanisms.retention import MultiScaleRetention
from xfcost.live.mechanisms.routing import RoutingAttention
from xfcost.live.mechanisms.rwkv import ChannelMixing, TimeMixing
from xfcost.live.mechanisms.sagan import SaganAttention
from xfcost.live.mechanisms.sinkhorn import SinkhornAttention
from xfcost.live.mechanisms.sliding import SlidingAttention
from xfcost.live.mechanisms.sparse import SparseAttention
from xfcost.live.mechanisms.spatial_reduction import SpatialReductionAttention
from xfcost.live.mechanisms.synthesizer import SynthesizerAttention
from xfcost.live.mechanisms.token_mlp import TokenMixingLinear, TokenMixingMlp
from xfcost.live.mechanisms.unfolded import UnfoldedAttention
from xfcost.live.mechanisms.window import WindowAttention
from xfcost.live.mechanisms.window_pooling import WindowPoolingAttention
from xfcost.mechanisms import (
    AveragePool,
    Axial,
    Basic,
    BlockSparse,
    Blockwise,
    Bottleneck,
    ByteNet,
    ClassAttention,
    Compressed,
    Compressive,
    Conv,
    ConvAttention,
    ConvMlp,
    ConvModule,
    ConvNext,
    Cross,
    DepthwiseConv,
    Full,
    Funnel,
    GlobalLocal,
    Gmlp,
    Gru,
    Hyena,
    Inducing,
    InvertedResidual,
    Kernel,
    LocalAttention,
    LocalRelation,
    LowRank,
    Lsh,
    Lstm,
    Mamba,
    Mamba2,
    Mla,
    NonLocal,
    Nystrom,
    Pooling,
    Relative,
    Retention,
    Rnn,
    Routing,
    RwkvChannel,
    RwkvTime,
    Sagan,
    Sinkhorn,
    Sliding,
    Sparse,
    SpatialReduction,
    Synthesizer,
    TokenLinear,
    TokenMlp,
    Unfolded,
    Window,
    WindowPooling,
)
from xfcost.mechanisms.base import Page

TWINS: dict[type[Page], type[nn.Module]] = {
    Full: FullAttention,
    Mla: LatentAttention,
    ClassAttention: ClassTokenAttention,
    Cross: CrossAttention,
    Window: WindowAttention,
    WindowPooling: WindowPoolingAttention,
    Inducing: InducedAttention,
    Axial: AxialAttention,
    Sliding: SlidingAttention,
    GlobalLocal: GlobalLocalAttention,
    BlockSparse: BlockSparseAttention,
    Blockwise: BlockwiseAttention,
    Relative: RelativeAttention,
    Lsh: LshAttention,
    Kernel: KernelAttention,
    Compressive: CompressiveAttention,
    LowRank: LowRankAttention,
    Routing: RoutingAttention,
    Nystrom: NystromAttention,
    Pooling: PoolingAttention,
    Compressed: CompressedAttention,
    Funnel: FunnelAttention,
    Synthesizer: SynthesizerAttention,
    Sparse: SparseAttention,
    Sinkhorn: SinkhornAttention,
    NonLocal: NonLocalBlock,
    Sagan: SaganAttention,
    TokenMlp: TokenMixingMlp,
    TokenLinear: TokenMixingLinear,
    Gmlp: GmlpBlock,
    AveragePool: AveragePooling,
    ConvNext: ConvNextBlock,
    SpatialReduction: SpatialReductionAttention,
    Bottleneck: BottleneckBlock,
    Basic: BasicBlock,
    LocalAttention: LocalSelfAttention,
    LocalRelation: LocalRelationLayer,
    ConvMlp: ConvolutionalFeedForward,
    DepthwiseConv: DepthwiseConvolution,
    ConvModule: ConvolutionModule,
    ConvAttention: ConvolutionalAttention,
    InvertedResidual: InvertedResidualBlock,
    Unfolded: UnfoldedAttention,
    Rnn: RecurrentLayer,
    Lstm: RecurrentLayer,
    Gru: RecurrentLayer,
    Conv: ConvolutionLayer,
    ByteNet: ByteNetBlock,
    Mamba: MambaBlock,
    Mamba2: Mamba2Block,
    RwkvTime: TimeMixing,
    RwkvChannel: ChannelMixing,
    Retention: MultiScaleRetention,
    Hyena: HyenaOperator,
}

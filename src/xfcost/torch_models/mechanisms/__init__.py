"""The torch module of every config of `xfcost.mechanisms`, under the same file name."""

from torch import nn

from xfcost.formulas.component import Component
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
from xfcost.torch_models.mechanisms.average_pool import AveragePooling
from xfcost.torch_models.mechanisms.axial import AxialAttention
from xfcost.torch_models.mechanisms.basic import BasicBlock
from xfcost.torch_models.mechanisms.block_sparse import BlockSparseAttention
from xfcost.torch_models.mechanisms.blockwise import BlockwiseAttention
from xfcost.torch_models.mechanisms.bottleneck import BottleneckBlock
from xfcost.torch_models.mechanisms.class_attention import ClassTokenAttention
from xfcost.torch_models.mechanisms.compressed import CompressedAttention
from xfcost.torch_models.mechanisms.compressive import CompressiveAttention
from xfcost.torch_models.mechanisms.conv import ByteNetBlock, ConvolutionLayer
from xfcost.torch_models.mechanisms.conv_attention import ConvolutionalAttention
from xfcost.torch_models.mechanisms.conv_mlp import ConvolutionalFeedForward
from xfcost.torch_models.mechanisms.conv_module import ConvolutionModule
from xfcost.torch_models.mechanisms.convnext import ConvNextBlock
from xfcost.torch_models.mechanisms.cross import CrossAttention
from xfcost.torch_models.mechanisms.depthwise_conv import DepthwiseConvolution
from xfcost.torch_models.mechanisms.full import FullAttention
from xfcost.torch_models.mechanisms.funnel import FunnelAttention
from xfcost.torch_models.mechanisms.global_local import GlobalLocalAttention
from xfcost.torch_models.mechanisms.gmlp import GmlpBlock
from xfcost.torch_models.mechanisms.hyena import HyenaOperator
from xfcost.torch_models.mechanisms.inducing import InducedAttention
from xfcost.torch_models.mechanisms.inverted_residual import InvertedResidualBlock
from xfcost.torch_models.mechanisms.kernel import KernelAttention
from xfcost.torch_models.mechanisms.local_attention import LocalSelfAttention
from xfcost.torch_models.mechanisms.local_relation import LocalRelationLayer
from xfcost.torch_models.mechanisms.low_rank import LowRankAttention
from xfcost.torch_models.mechanisms.lsh import LshAttention
from xfcost.torch_models.mechanisms.mamba import MambaBlock
from xfcost.torch_models.mechanisms.mamba2 import Mamba2Block
from xfcost.torch_models.mechanisms.mla import LatentAttention
from xfcost.torch_models.mechanisms.non_local import NonLocalBlock
from xfcost.torch_models.mechanisms.nystrom import NystromAttention
from xfcost.torch_models.mechanisms.pooling import PoolingAttention
from xfcost.torch_models.mechanisms.recurrent import RecurrentLayer
from xfcost.torch_models.mechanisms.relative import RelativeAttention
from xfcost.torch_models.mechanisms.retention import MultiScaleRetention
from xfcost.torch_models.mechanisms.routing import RoutingAttention
from xfcost.torch_models.mechanisms.rwkv import ChannelMixing, TimeMixing
from xfcost.torch_models.mechanisms.sagan import SaganAttention
from xfcost.torch_models.mechanisms.sinkhorn import SinkhornAttention
from xfcost.torch_models.mechanisms.sliding import SlidingAttention
from xfcost.torch_models.mechanisms.sparse import SparseAttention
from xfcost.torch_models.mechanisms.spatial_reduction import SpatialReductionAttention
from xfcost.torch_models.mechanisms.synthesizer import SynthesizerAttention
from xfcost.torch_models.mechanisms.token_mlp import TokenMixingLinear, TokenMixingMlp
from xfcost.torch_models.mechanisms.unfolded import UnfoldedAttention
from xfcost.torch_models.mechanisms.window import WindowAttention
from xfcost.torch_models.mechanisms.window_pooling import WindowPoolingAttention

MODULES: dict[type[Component], type[nn.Module]] = {
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

"""The torch module of every config of `xfcost.mechanisms`, under the same file name."""

from torch import nn

from xfcost.formulas.component import Component
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
from xfcost.torch_models.mechanisms.average_pool import AveragePooling
from xfcost.torch_models.mechanisms.axial import AxialAttention
from xfcost.torch_models.mechanisms.basic import BasicBlock
from xfcost.torch_models.mechanisms.block_sparse import BlockSparseAttention
from xfcost.torch_models.mechanisms.blockwise import BlockwiseAttention
from xfcost.torch_models.mechanisms.bottleneck import BottleneckBlock
from xfcost.torch_models.mechanisms.bytenet import ByteNetBlock
from xfcost.torch_models.mechanisms.class_attention import ClassTokenAttention
from xfcost.torch_models.mechanisms.compressed import CompressedAttention
from xfcost.torch_models.mechanisms.compressive import CompressiveAttention
from xfcost.torch_models.mechanisms.conv import ConvolutionLayer
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
from xfcost.torch_models.mechanisms.gru import GruLayer
from xfcost.torch_models.mechanisms.hyena import HyenaOperator
from xfcost.torch_models.mechanisms.inducing import InducedAttention
from xfcost.torch_models.mechanisms.inverted_residual import InvertedResidualBlock
from xfcost.torch_models.mechanisms.kernel import KernelAttention
from xfcost.torch_models.mechanisms.local_attention import LocalSelfAttention
from xfcost.torch_models.mechanisms.local_relation import LocalRelationLayer
from xfcost.torch_models.mechanisms.low_rank import LowRankAttention
from xfcost.torch_models.mechanisms.lsh import LshAttention
from xfcost.torch_models.mechanisms.lstm import LstmLayer
from xfcost.torch_models.mechanisms.mamba import MambaBlock
from xfcost.torch_models.mechanisms.mamba2 import Mamba2Block
from xfcost.torch_models.mechanisms.mla import LatentAttention
from xfcost.torch_models.mechanisms.non_local import NonLocalBlock
from xfcost.torch_models.mechanisms.nystrom import NystromAttention
from xfcost.torch_models.mechanisms.pooling import PoolingAttention
from xfcost.torch_models.mechanisms.relative import RelativeAttention
from xfcost.torch_models.mechanisms.retention import MultiScaleRetention
from xfcost.torch_models.mechanisms.rnn import RnnLayer
from xfcost.torch_models.mechanisms.routing import RoutingAttention
from xfcost.torch_models.mechanisms.rwkv_channel import ChannelMixing
from xfcost.torch_models.mechanisms.rwkv_time import TimeMixing
from xfcost.torch_models.mechanisms.sagan import SaganAttention
from xfcost.torch_models.mechanisms.sinkhorn import SinkhornAttention
from xfcost.torch_models.mechanisms.sliding import SlidingAttention
from xfcost.torch_models.mechanisms.sparse import SparseAttention
from xfcost.torch_models.mechanisms.spatial_reduction import SpatialReductionAttention
from xfcost.torch_models.mechanisms.synthesizer import SynthesizerAttention
from xfcost.torch_models.mechanisms.token_linear import TokenMixingLinear
from xfcost.torch_models.mechanisms.token_mlp import TokenMixingMlp
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
    Rnn: RnnLayer,
    Lstm: LstmLayer,
    Gru: GruLayer,
    Conv: ConvolutionLayer,
    ByteNet: ByteNetBlock,
    Mamba: MambaBlock,
    Mamba2: Mamba2Block,
    RwkvTime: TimeMixing,
    RwkvChannel: ChannelMixing,
    Retention: MultiScaleRetention,
    Hyena: HyenaOperator,
}

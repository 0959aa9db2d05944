"""EfficientNet, MobileNetV2 and VGG."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off

HUNDREDTH_OF_A_BILLION = 1e7
UNSAID = "what the paper counts is not printed"

PUBLISHED: Judged = {
    ("efficientnet-b1", "macs", 0.70e9): Off(HUNDREDTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b2", "params", 9.2e6): Off(TENTH_OF_A_MILLION, "9.11M in the public code too"),
    ("efficientnet-b2", "macs", 1.0e9): TENTH_OF_A_BILLION,
    ("efficientnet-b4", "macs", 4.2e9): Off(TENTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b5", "macs", 9.9e9): Off(TENTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b7", "macs", 37e9): Off(1e9, UNSAID),
    ("mobilenetv2-1.0", "params", 3.4e6): Off(TENTH_OF_A_MILLION, "3.47M without batch norms, cut off"),
    ("mobilenetv2-1.0", "macs", 300e6): HUNDREDTH_OF_A_BILLION,
    ("vgg-16", "macs", 15.3e9): Off(TENTH_OF_A_BILLION, "without the linear layers"),
}

"""docs/transformers.csv is what the models say today, and its MACs are those that torch's own counter counts."""

import pytest

pytest.importorskip("transformers")
from transformers_table import config, configurations, line, made, written


def inputs_of(name: str) -> dict[str, tuple[int, ...]]:
    with config(name) as path:
        return {key: tuple(value.shape) for key, value in made(path, "cpu")[1].kwargs.items()}


def test_sixty_and_more_are_counted_whole_and_as_torch_does() -> None:
    lines = written()
    assert [one["class"] for one in lines] == list(configurations())
    assert len(lines) >= 60
    for one in lines:
        assert one["macs"] == (one["torch_macs"] or one["plain_macs"])
        assert one["uncounted"] == "0"


@pytest.mark.rest
@pytest.mark.parametrize("name", [one["class"] for one in written()][::8])
def test_the_table_is_of_today(name: str) -> None:
    expected = next(one for one in written() if one["class"] == name)
    assert {key: str(value) for key, value in line(name).items()} == expected


@pytest.mark.rest
def test_the_usual_inputs_of_a_detector_are_images_alone() -> None:
    assert "decoder_input_ids" not in inputs_of("DetrForObjectDetection")
    assert list(inputs_of("Blip2ForConditionalGeneration")) == ["pixel_values", "input_ids"]
    assert inputs_of("WhisperForConditionalGeneration")["decoder_input_ids"] == (1, 16)
    assert inputs_of("WhisperForConditionalGeneration")["input_features"] == (1, 8, 40)
    assert inputs_of("ASTModel") == {"input_values": (1, 64, 32)}
    # 16 patches stand before the 16 tokens of the text
    assert inputs_of("LlavaForConditionalGeneration")["input_ids"] == (1, 32)

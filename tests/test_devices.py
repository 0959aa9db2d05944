"""The figures of devices: sources, dense peaks, one direction of links; names, the user's own file, this machine."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from helpers import table_of, xf
from xfcost import roofline
from xfcost.counting import devices
from xfcost.counting.devices import OWN, DeviceFile
from xfcost.ledger import calibration as files
from xfcost.ledger.calibration import Baseline, CalibratedMachine, Calibration, Overhead
from xfcost.ledger.device import PEAK_DTYPES, DeviceGroup
from xfcost.ledger.errors import SpecError, UsageError

SHIPPED = devices._SHIPPED


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """An empty folder of settings, in place of the user's."""
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    return tmp_path


def every():
    return [devices.device(name) for name in devices.device_names()]


def figures(device):
    link = [device.link.rate] if device.link else []
    return [*device.peaks.values(), device.bandwidth, *([device.memory] if device.memory else []), *link]


def test_every_figure_names_its_sources_and_every_source_is_used():
    used = set()
    for device in every():
        for figure in figures(device):
            assert figure.sources, device.name
            assert set(figure.sources) <= set(device.sources), device.name
            used |= set(figure.sources)
    listed = yaml.safe_load(SHIPPED.read_text("utf-8"))["sources"]
    assert used == set(listed)
    assert all(one["title"] for one in listed.values())


def test_a_figure_without_source_is_refused():
    text = SHIPPED.read_text("utf-8")
    without = re.sub(r"(bandwidth: \{value: 320 GB/s), sources: \[[^]]*\]", r"\1", text)
    assert without != text
    with pytest.raises(SpecError, match=r"devices\.yaml:\d+ devices\.t4\.bandwidth: a figure without source"):
        DeviceFile(without, "devices.yaml", own=False).device("t4")
    unknown = text.replace("value: 320 GB/s, sources: [epoch", "value: 320 GB/s, sources: [epoc")
    with pytest.raises(SpecError, match=r"'epoc' is not in `sources`; did you mean 'epoch'\?"):
        DeviceFile(unknown, "devices.yaml", own=False).device("t4")


# Read apart from the list of the package (Epoch AI's table, Composer, torchtitan, ml-engineering, vendors' pages):
# memory, GB/s, dense TFLOP/s, one direction of links in GB/s. A cell is empty where that source has no figure.
READ_AGAIN = table_of(Path(__file__).with_name("data") / "devices.csv")


def read_again(line):
    """Name of a figure -> its value in SI units."""
    size, unit = line["memory"].split() if line["memory"] else ("0", "GB")  # of a processor what is built in
    giga = ("bandwidth", "link", "network")
    rates = {name: float(line[name]) * 1e9 for name in giga if line[name]}
    return {
        **({"memory": float(size) * {"GB": 10**9, "GiB": 2**30}[unit]} if line["memory"] else {}),
        **rates,
        **{dtype: float(line[dtype]) * 1e12 for dtype in PEAK_DTYPES if line[dtype]},
        **{name: int(line[name]) for name in ("year", "node") if line[name]},
    }


def test_every_device_was_read_again():
    assert [line["device"] for line in READ_AGAIN] == list(devices.device_names())


@pytest.mark.parametrize("line", READ_AGAIN, ids=lambda line: line["device"])
def test_every_figure_is_that_of_a_second_reading(line):
    one, second = devices.device(line["device"]), read_again(line)
    links = {"link": one.link, "network": one.network}
    ours = {"memory": one.memory_bytes, "bandwidth": one.bytes_per_second, "year": one.year, "node": one.node}
    ours |= {name: link and link.rate.value for name, link in links.items()}
    ours |= {dtype: figure.value for dtype, figure in one.peaks.items()}
    ours = {name: value for name, value in ours.items() if value is not None}
    # the same up to the digits that the two print: 1638 and 1640 GB/s, 66.9 and 67 TFLOP/s
    assert ours == pytest.approx({name: second[name] for name in ours}, rel=2e-3)


def test_tensor_cores_double_with_every_halving_of_the_dtype():
    seen = 0
    for device in every():
        if device.vendor == "NVIDIA" and "bfloat16" in device.peaks:
            bf16, geforce = device.peak("bfloat16"), "GeForce" in device.title  # theirs is halved, that of int8 is not
            assert device.peak("int8") == pytest.approx((4 if geforce else 2) * bf16, rel=0.015), device.name
            assert device.peak("float32") <= device.peak("tf32"), device.name
            assert device.peak("tf32") == pytest.approx(bf16 / 2, rel=0.015), device.name
            assert device.peak("float16") == bf16, device.name
            seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    ("name", "stated", "of"),
    [
        ("rtx-3060-12", 101, "float16"), ("rtx-4060", 242, "float8"), ("rtx-4060-ti-16", 353, "float8"),
        ("rtx-4070", 466, "float8"), ("rtx-4080", 780, "float8"), ("rtx-4090", 1321, "float8"),
        ("rtx-5070", 988, "float4"), ("rtx-5070-ti", 1406, "float4"), ("rtx-5080", 1801, "float4"),
        ("rtx-5090", 3352, "float4"),
    ],
)  # fmt: skip
def test_geforce_cards_have_the_stated_ai_tops(name, stated, of):
    """NVIDIA states the largest rate of tensor cores: the fewest bits, float16 accumulation, structured sparsity.

    Of bfloat16 with float32 accumulation that is 4 times as much in float16, and twice that for every halving of the
    dtype.
    """
    times = {"float16": 4, "float8": 8, "float4": 16}[of]
    assert times * devices.device(name).peak("bfloat16") / 1e12 == pytest.approx(stated, rel=0.01)


@pytest.mark.parametrize(
    ("name", "channels", "rate"),
    [("ryzen-9950x", 2, 5600), ("core-14900k", 2, 5600), ("epyc-9654", 12, 4800), ("xeon-8592", 8, 5600)],
)
def test_the_bandwidth_of_a_processor_is_that_of_its_channels(name, channels, rate):
    found = devices.device(name)
    assert found.bytes_per_second == channels * 8 * rate * 1e6
    assert f"{channels} channels of DDR5-{rate}" in found.title
    assert found.memory_bytes is None  # that is what was built in


def test_usable_memory_is_less_than_its_label_in_gibibytes():
    assert devices.device("h100-sxm").memory_bytes == 84942979072
    for device in every():
        label = re.search(r"(\d+) GB", device.title)
        if device.memory_kind == "usable" and label:
            assert 0.95 * int(label[1]) * 2**30 < device.memory_bytes < int(label[1]) * 2**30, device.name


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("h100-sxm", "h100-sxm", 1), ("h100-sxmx8", "h100-sxm", 8), ("h100-sxm[x8]", "h100-sxm", 8),
        ("H100-SXM x8", "h100-sxm", 8), ("h100_sxm × 8", "h100-sxm", 8), ("NVIDIA H100 SXM", "h100-sxm", 1),
        ("rtx4090", "rtx-4090", 1), ("4090x2", "rtx-4090", 2), ("rtx-4090x2", "rtx-4090", 2),
        ("h200", "h200-sxm", 1), ("rtx 3060", "rtx-3060-12", 1), ("5070 ti", "rtx-5070-ti", 1),
        ("M5 Max", "apple-m5-max", 1), ("GeForce RTX 5070", "rtx-5070", 1), ("9950x", "ryzen-9950x", 1),
        ("v5e x256", "tpu-v5e", 256),
        ("mi300x", "mi300x", 1), ("mi300xx8", "mi300x", 8), ("mi250x x4", "mi250x", 4),
        ("h100", "h100-sxm", 1), ("h100x8", "h100-sxm", 8), ("8xH100", "h100-sxm", 8), ("H100:8", "h100-sxm", 8),
        ("2x4090", "rtx-4090", 2), ("h100-80gb", "h100-sxm", 1), ("A100 80GB", "a100-sxm-80", 1),
        ("a100-40", "a100-sxm-40", 1), ("NVIDIA H100 80GB HBM3", "h100-sxm", 1), ("H100 NVL", "h100-nvl", 1),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80", 1), ("a100-sxm4-80gb", "a100-sxm-80", 1),
        ("NVIDIA GeForce RTX 4090", "rtx-4090", 1), ("Tesla T4", "t4", 1), ("rtx3060", "rtx-3060-12", 1),
        ("rtx4060ti x2", "rtx-4060-ti-16", 2), ("m3max", "apple-m3-max", 1),
    ],
)  # fmt: skip
def test_names(text, name, count):
    found = devices.read_devices(text)
    assert (found.device.name, found.count) == (name, count)
    assert devices.read_devices(found) is found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (8, "expected a device"), ("this-machine", "this machine is not calibrated"),
        ("cpu", "--device cpu runs and times the model on this machine"), ("cuda", "--device cuda runs"),
        ("a100-pcie", r"which of a100-pcie-40 \(37.3 GiB\), a100-pcie-80 \(74.5 GiB\)"),
        ("a100-pciex8", r"which of a100-pcie-40 \("),
        ("mi300", r"did you mean mi300x \(192 GiB\) or mi300a \(128 GiB\)"),
        ("h800", r"did you mean h200-sxm \(131 GiB\) or h100-pcie"), ("nopex8", "expected one of v100-pcie-16, "),
        ("8xnope", "expected one of v100-pcie-16, "), ("8xnvidia", "expected one device here"),
    ],
)  # fmt: skip
def test_bad_names(text, message):
    with pytest.raises(UsageError, match=message):
        devices.read_devices(text)


def test_a_name_that_means_the_most_common_form_is_that_of_no_device():
    others = {other: device.name for device in every() for other in device.also}
    assert others == {
        "h100": "h100-sxm", "h100-80": "h100-sxm", "a100": "a100-sxm-80", "a100-80": "a100-sxm-80",
        "a100-40": "a100-sxm-40", "v100": "v100-sxm2-16", "gh200": "gh200-96",
    }  # fmt: skip
    assert others.keys().isdisjoint(devices.device_names())


def test_a_group_has_all_of_its_devices():
    one, eight = devices.read_devices("h100-sxm"), devices.read_devices("h100-sxmx8")
    for figure in ("memory_bytes", "bytes_per_second"):
        assert getattr(eight, figure) == 8 * getattr(one, figure)
    assert eight.peak("bfloat16") == 8 * one.peak("bfloat16") == 8 * 989.4e12
    assert eight.title == "8 × NVIDIA H100 SXM 80 GB"
    assert isinstance(devices.read_devices(one.device), DeviceGroup)


OWN_FILE = """\
devices:
  h100-sxm:
    price_per_hour: 2.5
    peaks: {bfloat16: 800T}
  abacus:
    title: The abacus
    also: [frame]
    memory: 64 GiB
    bandwidth: 1.5 TB/s
    peaks: {float32: 20 TFLOP/s, bfloat16: 2e14}
    link: {name: beads, rate: 10 GB/s}
    node: 4
    network: {name: string, rate: 1 GB/s}
"""


def test_a_user_s_file_adds_devices_and_replaces_figures(settings):
    (settings / "devices.yaml").write_text(OWN_FILE)
    h100, abacus = devices.device("h100-sxm"), devices.device("abacus")
    assert (h100.price_per_hour, h100.peak("bfloat16"), h100.peak("float32")) == (2.5, 800e12, 66.9e12)
    assert h100.peaks["bfloat16"].sources == (OWN,)
    assert h100.sources[OWN].title.endswith("devices.yaml")
    assert (abacus.memory_bytes, abacus.memory_kind, abacus.bytes_per_second) == (64 * 2**30, "usable", 1.5e12)
    assert abacus.peak("bfloat16") == 2e14
    assert (abacus.node, abacus.network.name, abacus.network.rate.value) == (4, "string", 1e9)
    assert devices.read_devices("3xframe").device.name == "abacus"
    assert devices.read_devices("abacusx3").memory_bytes == 3 * 64 * 2**30
    assert devices.read_devices("h100-sxmx8").price_per_hour == 20


def test_a_device_of_which_the_peak_of_tf32_alone_is_known_has_bounds(settings):
    (settings / "devices.yaml").write_text("devices: {abacus: {memory: 1G, bandwidth: 1T, peaks: {tf32: 100T}}}")
    (softmax,) = (row for row in roofline("vit", on="abacus", dtype="tf32")[0].ledger.rows if row.title == "Softmax")
    assert softmax.predicted_seconds == pytest.approx(softmax.operand_bytes / 1e12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devices: [", r"devices\.yaml:2 is not valid YAML"),
        ("", r"devices\.yaml:1 is empty; expected `devices:` and under it a name with its figures"),
        ("- h100", r"a list at top level; expected `devices:`"),
        ("devices:\n  - h100", r"devices\.yaml:1 devices: \['h100'\]: expected keys and values"),
        ("device: {}", r"unknown key; did you mean 'devices'\?"),
        ("devices:\n  x1:\n    peaks: {float32: 1T}", r"devices\.yaml:2 devices\.x1: `bandwidth` is missing"),
        ("devices:\n  x1:\n    bandwidth: 1 TB/s", r"`peaks` is missing"),
        ("devices:\n  t4:\n    price: 2",
         r"devices\.yaml:3 devices\.t4\.price: unknown key; expected one of .*price_per_hour"),
        ("devices:\n  t4:\n    price_per_hour: two", r"'two': expected a price per hour"),
        ("devices:\n  t4:\n    price_per_hour: -1", r"-1: expected a price per hour"),
        ("devices:\n  t4:\n    peaks:\n      bf16: 1T", r"devices\.yaml:4 .*no such dtype; .*bfloat16"),
        ("devices:\n  t4:\n    peaks: {float32: 989.4}", r"989\.4: expected dense FLOP/s .* as in 989\.4 TFLOP/s"),
        ("devices:\n  t4:\n    peaks: {}", r"expected a peak of one dtype or more"),
        ("devices:\n  t4:\n    memory: 80", r"80: expected bytes .* as in 79\.1 GiB or 80 GB"),
        ("devices:\n  t4:\n    memory: {value: 80 GB, kind: used}", r"'used'; did you mean 'usable'\?"),
        ("devices:\n  t4:\n    bandwidth: fast", r"'fast': expected bytes per second"),
        ("devices:\n  t4:\n    bandwidth: true", r"true: expected bytes per second"),
        ("devices:\n  t4:\n    bandwidth: {value: 1 TB/s, of: 2}", r"bandwidth\.of: unknown key"),
        ("devices:\n  t4:\n    link: 450 GB/s", r"link: '450 GB/s': expected keys and values"),
        ("devices:\n  t4:\n    link: {name: NVLink}", r"expected \{name: …, rate: …\}"),
        ("devices:\n  t4:\n    node: 1", r"node: 1: expected how many devices the link joins, as in 8"),
        ("devices:\n  t4:\n    network: 50 GB/s", r"network: '50 GB/s': expected keys and values"),
        ("devices:\n  t4:\n    year: new", r"'new': expected a year"),
        ("devices:\n  t4:\n    also: tesla", r"'tesla': expected a list of names"),
        ("devices:\n  t4:\n    notes: old", r"'old': expected a list of sentences"),
        ("devices:\n  t4:\n    title: ''", r"'': expected a text"),
        ("devices:\n  t4: 3", r"devices\.t4: 3: expected keys and values"),
        ("devices:\n  card: {bandwidth: 1 TB/s, peaks: {float32: 1T}}\n  cardx8:\n    bandwidth: 1 TB/s",
         r"devices\.yaml:3 devices\.cardx8: means 8 of card; a device's name does not end in x and digits"),
        ("devices:\n  H100-SXM x2: {price_per_hour: 2}", r"means 2 of h100-sxm;"),
        ("sources: {mine: {name: x}}\ndevices: {}", r"sources\.mine: .*expected \{title: …, url: …\}"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_line(settings, text, message):
    (settings / "devices.yaml").write_text(text)
    with pytest.raises(SpecError, match=message):
        [devices.device(name) for name in devices.device_names()]


def test_a_file_that_is_a_folder_is_refused(settings):
    (settings / "devices.yaml").mkdir()
    with pytest.raises(SpecError, match="is a directory"):
        devices.device_names()


def calibration(device, dtype, macs, threads=2):
    machine = CalibratedMachine(device=device, name="a machine", threads=threads, dtype=dtype, torch="2.6")
    baseline = Baseline(call_seconds=1e-6, macs_per_second=macs, bytes_per_second=2e10)
    return Calibration(
        machine=machine, measured="2026-11-22T12:00:00Z", baseline=baseline,
        overhead=Overhead(call=0, view=0, module=0), networks=(), samples=(),
    )  # fmt: skip


def write(settings, *found):
    for number, one in enumerate(found):
        (settings / f"calibration-{number}.json").write_bytes(msgspec.json.encode(one))
    devices._calibrations.cache_clear()


def test_this_machine_has_the_peaks_of_its_calibrations(settings):
    write(settings, calibration("cpu", "float32", 1e11), calibration("cpu", "bfloat16", 3e11))
    found = devices.read_devices("this-machine").device
    assert (found.peak("float32"), found.peak("bfloat16"), found.bytes_per_second) == (2e11, 6e11, 2e10)
    assert found.calibrated == "2026-11-22T12:00:00Z"
    assert found.memory_kind == "physical"
    assert found.title == "a machine (cpu, 2 threads)"
    with pytest.raises(UsageError, match="no float16 peak"):
        found.peak("float16")


def test_of_several_calibrated_devices_each_has_a_name(settings):
    write(settings, calibration("cpu", "float32", 1e11), calibration("cuda", "float32", 1e13, threads=1))
    assert devices.read_devices("this-machine-cuda").peak("float32") == 2e13
    assert devices.device("this-machine-cuda").memory_bytes is None
    with pytest.raises(UsageError, match=r"which of this-machine-cpu.*, this-machine-cuda\?"):
        devices.read_devices("this-machine")


def test_the_calibration_with_the_most_threads_counts_and_broken_ones_do_not(settings):
    write(settings, calibration("cpu", "float32", 1e11, threads=1), calibration("cpu", "float32", 4e11, threads=4))
    (settings / "calibration-broken.json").write_text("{")
    devices._calibrations.cache_clear()
    assert devices.read_devices("this-machine").peak("float32") == 8e11


@pytest.mark.parametrize(("width", "hidden"), [(60, True), (80, True), (100, False), (140, False)])
def test_the_list_fits_the_terminal_and_breaks_no_name(width, hidden):
    lines = xf("devices", COLUMNS=str(width)).stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("Columns left out to fit: tf32, ") for line in lines) == hidden
    assert {line.split()[0] for line in lines[1 : lines.index("") - hidden]} == set(devices.device_names())


def test_h200_has_its_label():
    """141 · 1024³ B, which a library has, is the label with another unit; no driver's figure is known."""
    h200 = devices.device("h200-sxm")
    assert (h200.memory_bytes, h200.memory_kind, h200.memory.sources) == (141 * 10**9, "nominal", ("epoch",))

"""The commands, end to end: what they print, how they refuse, what they leave on disk."""

import json
import os
import re
import signal
import subprocess
import sys

import msgspec
import pytest
from typer.testing import CliRunner

import xfcost
from helpers import environment, error_of, report_text, stdout_of, words_of, xf
from xfcost.cli import COMMANDS, _flags, app, command
from xfcost.commands.words import meant
from xfcost.formulas.contractions import Cost
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.join import join
from xfcost.ledger.operation import Operation
from xfcost.program.tape import Tape, TapeCall


def test_json_is_one_object_and_nothing_else():
    done = xf("analyze", "vit", "--format", "json")
    told = json.loads(done.stdout)
    assert told == json.loads(xfcost.analyze("vit").to_json())
    # 12 layers × 6 heads × 785² entries × 4 bytes; at the peak one layer's scores and softmax output are alive
    assert told["totals"]["attention_bytes"] == 12 * 6 * 785**2 * 4
    assert told["totals"]["attention_peak_bytes"] == 2 * 6 * 785**2 * 4 == 29_578_800
    assert told["agreement"] == {
        "exact": True, "accounts": ["traced", "dispatched"], "differences": [], "uncounted": [],
    }  # fmt: skip
    assert set(told["by_mixing"]) == {"per-token", "local", "global"}
    for quantity in ("params", "macs", "flops", "attention_entries"):
        rows = sum(row[quantity] * row["times"] for row in told["operations"])
        kinds = sum(kind[quantity] for kind in told["by_mixing"].values())
        assert rows == kinds == told["totals"][quantity], quantity


class TestAgreement:
    """What the report says where the two accounts differ: hand-made differences, since there are none."""

    def joined(self, *, times=None, lacking=False, more=False, uncounted=()):
        ledger = xfcost.analyze("vit-ti16", trace=False)
        theirs = list(ledger.rows)
        scores = next(number for number, row in enumerate(theirs) if row.operation == "scores")
        if times:
            theirs[scores] = msgspec.structs.replace(theirs[scores], times=times)
        if lacking:
            theirs.pop(scores)
        if more:
            theirs.append(Operation(path="stages.0.block.0.roll", title="Roll"))
        return join(ledger, theirs, uncounted)

    def cell(self, text):
        """The cell under `trace` of the scores."""
        return next(line for line in text.splitlines() if "Attention scores" in line).split()[-1]

    @pytest.mark.parametrize(
        ("how", "cell", "told"),
        [
            ({}, "=", "exactly in all 20 operations"),
            ({"times": 11}, "≠", "DISAGREE in 1 place\n"),
            ({"lacking": True}, "≠", "DISAGREE in 1 place\n"),
            ({"more": True}, "=", "stages.0.block.0.roll operation: counted –, traced 1"),
            ({"uncounted": ["aten::sort"]}, "=", "agree in all 20 operations, but 1 thing was not counted"),
            (
                {"times": 11, "more": True, "uncounted": ["aten::sort"]},
                "≠",
                "DISAGREE in 2 places, and 1 thing was not",
            ),
        ],
        ids=["all agree", "a row differs", "a row lacks", "a row more", "uncounted", "all at once"],
    )
    def test_each_difference_is_marked_and_counted(self, how, cell, told):
        text = report_text(self.joined(**how))
        assert told in text
        assert self.cell(text) == cell
        assert text.count("≠") == (cell == "≠")
        assert ("DISAGREE" in text) == bool(how.keys() - {"uncounted"})
        assert (re.search("agrees? exactly", text) is not None) == (not how)


def test_the_same_system_twice_keeps_two_names():
    told = json.loads(xf("compare", "vit", "vit", "--format", "json").stdout)
    assert set(told["ratios"]) == {"ViT-S/8", "ViT-S/8 #2"}
    assert told["ratios"]["ViT-S/8 #2"]["macs"] == 1


def test_systems_of_one_name_are_told_apart_by_their_files(tmp_path):
    texts = {
        "old.yaml": "extends: vit\nname: Mine\nset: {stages.0.depth: 9}\n",
        "mine.yaml": "extends: vit\nname: Mine\n",
    }
    files = [tmp_path / name for name in texts]
    for file in files:
        file.write_text(texts[file.name], encoding="utf-8")
    told = json.loads(xf("compare", *map(str, files), "vit", "--format", "json").stdout)
    assert set(told["ratios"]) == {"Mine (old.yaml)", "Mine (mine.yaml)", "ViT-S/8"}


class TestCircumstances:
    def test_crossovers_that_were_not_looked_for_are_no_none(self, tmp_path):
        # Ten positions, and the class token takes one: grids of 1, 4 and 9 tokens fit. ConvNeXt-T halves its grid three
        # times by kernels of 2×2, for which those are too small.
        tiny = tmp_path / "tiny.yaml"
        tiny.write_text(
            "extends: vit-ti16\nname: Tiny\ninput: {kind: image, size: 32}\n"
            "embed: [{kind: patch, size: 16}, {kind: class_token}, {kind: position, length: 10}]\n"
        )
        told = json.loads(xf("compare", tiny, "convnext-t", "--format", "json").stdout)
        assert (told["crossovers_searched"]["N"], told["crossovers_searched"]["pairs"]) == ([0, 0], [])

    def test_a_name_in_brackets_is_a_name(self, tmp_path):
        spec = tmp_path / "odd.yaml"
        spec.write_text('extends: vit-ti16\nname: "Net [v2] [/x]"\n')
        for words in (["analyze", spec, "--no-trace"], ["compare", spec, "vit"], ["glance", spec], ["diagram", spec]):
            text = stdout_of(*words)
            assert "Net [v2] [/x]" in text

    @pytest.mark.parametrize("words", [["analyze", "vit-ti32"], ["compare", "vit-ti32", "vit-s32", "--trace"]])
    def test_disagreement_ends_with_one(self, words, monkeypatch):
        # A component whose formula is off by one: the report is printed, and the exit code is 1.
        forward = Mlp.forward

        def off(self, t, *inputs):
            if isinstance(t, Tape):
                t.record.calls.append(TapeCall("aten::linear", "fc1", Cost(macs=1)))
            return forward(self, t, *inputs)

        monkeypatch.setattr(Mlp, "forward", off)
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1, done.output
        assert "DISAGREE" in done.output


class TestFiles:
    @pytest.mark.skipif(os.name != "posix", reason="pipes and links")
    def test_a_pipe_is_no_file(self, tmp_path):
        pipe = tmp_path / "pipe.csv"
        os.mkfifo(pipe)
        assert "device or a pipe" in error_of("analyze", "vit", "--no-trace", "-o", pipe, "--force")

    @pytest.mark.skipif(os.name != "posix", reason="pipes and links")
    def test_a_link_keeps_pointing(self, tmp_path):
        target, link = tmp_path / "target.csv", tmp_path / "link.csv"
        link.symlink_to(target)  # it points at nothing yet, and is there all the same
        assert "--force" in error_of("analyze", "vit", "--no-trace", "-o", link)
        assert xf("analyze", "vit", "--no-trace", "-o", link, "--force").returncode == 0
        assert link.is_symlink()
        assert target.read_text(encoding="utf-8").startswith("path,")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux's full device")
    def test_a_full_disk_is_a_message(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                words_of("analyze", "vit", "--no-trace"),
                check=False,
                stdout=full,
                stderr=subprocess.PIPE,
                encoding="utf-8",
            )
        assert done.returncode == 2
        assert "stdout can't be written" in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("ending", ["csv", "json", "md", "tex", "txt"])
    def test_the_ending_says_the_format(self, tmp_path, ending):
        target = tmp_path / f"report.{ending}"
        done = xf("analyze", "vit", "--no-trace", "-o", target)
        assert done.returncode == 0
        assert done.stdout == ""
        assert f"Wrote {target}" in done.stderr
        assert target.read_text(encoding="utf-8").endswith("\n")
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.skipif(os.name != "posix", reason="/proc is Linux's")
    @pytest.mark.parametrize("target", [f"{'a' * 300}.csv", "no/report.csv", "/proc/report.csv"])
    def test_a_place_that_can_not_be_written_is_refused_before_any_work(self, tmp_path, target):
        assert error_of("analyze", "no.yaml", "-o", target, cwd=tmp_path).startswith("error: -o ")
        error_of("analyze", "no.yaml", "-o", "report.csv", cwd=tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("analyze vit --device cuda:99", "this machine has"),
            ("analyse vit", "No such command 'analyse'; did you mean 'analyze'"),
            ("bert-bse", "No such command 'bert-bse'; did you mean 'bert-base'"),
            # other tools' options propose ours
            ("analyze vit --gpu 1", "No such option: --gpu.*--on h100-sxm .* or --device cuda"),
            ("plot vit --x image-size", "No such option: --x; did you mean --size 224:1024"),
            ("analyze vit --vram 8GB", "did you mean --on rtx4060 .*, or xfcost check vit --max-memory 8GB"),
            ("check vit --max-exponent 1", r"No such option: --max-exponent$"),
            ("analyze vit --size 224:1024", "`xfcost plot SPEC --size 224:1024 --metric macs`"),
            ("analyze vit --foo", r"No such option: --foo$"),
            (
                "analyze swin --set window=14",
                r"size or heads, as in --set stages\.\*\.pattern\.\*\.0\.size=14",
            ),
            ("analyze vit --kv-dtype 1", "--cache-dtype 1: expected fp8, int8 or none"),
            ("plot vit --dtype fp8", "--dtype fp8: .*; for weights in it: --weights-dtype fp8"),
            ("analyze vit --batc 1", "No such option: --batc.*--batch"),
        ],
    )
    def test_says_what_was_expected(self, words, said):
        # what depends on the machine, and what versions of typer write differently
        assert re.search(said, error_of(*words.split()))

    @pytest.mark.parametrize(
        ("words", "meaning"),
        [
            ("vit", "analyze vit"),
            ("bert-base-uncased --seq-len 512", "analyze bert-base-uncased --N 512"),
            ("full", "analyze full"),
            ("net.py:Net --input-size 1,128,512", "analyze net.py:Net --input 1,128,512"),
            ("vit swin --csv a.csv", "compare vit swin --output a.csv"),
            ("decode gpt2 gpt1 --N 64", "compare gpt2 gpt1 --N 64 --mode decode"),
            ("train gpt2 --gpus 64 --gpu h100", "analyze gpt2 --devices 64 --on h100 --mode train"),
            ("generate gpt2 --new-tokens 8", "analyze gpt2 --new-tokens 8 --mode generate"),
            ("gpt2 --by layer", "analyze gpt2 --by block"),
            ("formula swin --latex", "analyze swin --format latex"),
            ("serve llama3-8b --N 8k", "analyze llama3-8b --N 8k --mode decode --on h100-sxm"),
            ("serve gpt2 --gpu=l4 --tp 2", "analyze gpt2 --on l4 --tensor-parallel 2 --mode decode"),
            ("train gpt2 --gpu l4 --num-gpus 64", "analyze gpt2 --on l4 --devices 64 --mode train"),
            ("memory gpt2 --train --gradient-checkpointing --on l4",
             "analyze gpt2 --mode train --recompute full --on l4"),
            ("time gpt2 --device cuda", "analyze gpt2 --device cuda"),
            ("scale vit swin", "plot vit swin"),
            ("models", "list --models"),
            ("vitt", None),
            ("analyze vit --N 784", None),
            # one system is analyzed where several would be compared, or a list of sizes drawn
            ("crossover gpt2", "analyze gpt2"),
            ("crossover vit swin", "compare vit swin"),
            ("sweep vit --N 256 1024 4096", "analyze vit --N 256,1024,4096"),
            ("sweep swin --size 224,384", "plot swin --size 224,384"),
            ("sweep vit swin --N 64:1024", "plot vit swin --N 64:1024"),
            # an option that another command has
            ("analyze vit --max-flops 3G --json", "check vit --max-flops 3G --format json"),
            ("diff vit swin --max-macs 4G", "check swin --against vit --max-macs 4G"),
            ("diff a.yaml b.yaml --fail-above 3%", "check b.yaml --against a.yaml --max-increase 3%"),
            ("compare vit swin --N 196 784 --plot a.pdf", "plot vit swin --N 196,784 --output a.pdf"),
            ("check vit --save-baseline a.json", "analyze vit --output a.json"),
            ("check vit --baseline main --tolerance 2%", None),
            ("analyze vit --html a.html", "report vit --output a.html"),
            ("baseline save vit -o b.json", "analyze vit -o b.json"),
            # words, values and lists of other tools
            ("lora gpt2 -r 8 --target-modules q_proj v_proj",
             "analyze gpt2 --lora 8 --lora-on q_proj,v_proj --mode train"),
            ("speculative gpt2-xl gpt2 -k 4",
             "analyze gpt2-xl --draft gpt2 --draft-tokens 4 --mode decode --on h100-sxm"),
            ("serve gpt2 --gpu 4090 --context 32k --bits 4",
             "analyze gpt2 --on 4090 --N 32Ki --weights-dtype int4 --mode decode"),
            ("kv gpt2 --ctx 100k", "analyze gpt2 --N 100k --mode decode"),
            ("summary net.py:Net --input_size 1 3 32 32 --macs", "analyze net.py:Net --input 1x3x32x32"),
            ("fit llama3-8b --dtype int4 --gpu l4", "analyze llama3-8b --weights-dtype int4 --on l4 --mode decode"),
            ("table vit swin -f md", "compare vit swin --format markdown"),
            ("analyse-me vit", None),
            ("serve gpt2 --gpu l4 --concurrency 8 --tpot 20ms",
             "analyze gpt2 --on l4 --batch 8 --tokens-per-user 50 --mode decode"),
            ("search vit --vary stages.0.depth=4,8", "find vit --vary stages.0.depth=4,8"),
            ("summary vit --layers 4 --heads 3", "analyze vit --set depth=4 --set heads=3"),
            ("summary vit --layers", "analyze vit --by block"),
            ("models --family llama", "list llama --models"),
            ("summary vit --num-heads 12 depth=4", "analyze vit --set heads=12 --set depth=4"),
            ("summary vit --input-size 1,3,384,384", "analyze vit --batch 1 --size 384x384"),
            ("summary resnet50 --input-size 3x64x96", "analyze resnet50 --size 64x96"),
            ("summary gpt2 --input 2x512", "analyze gpt2 --batch 2 --N 512"),
            ("summary ./net.json --input 2x512", "analyze ./net.json --input 2x512"),
            ("fits gpt2 --gpu t4", "check gpt2 --on t4 --mode decode"),
            ("scale vit --N 64..16384 --loglog --y memory", "plot vit --N 64:16384 --metric attention-memory"),
            ("scale vit --metric latency --out a.png", "plot vit --metric time --output a.png"),
            ("verify vit --by-stage", "analyze vit --by stage --trace"),
            ("max-context gpt2 --gpu l4", "analyze gpt2 --on l4 --mode decode"),
            ("analyze vit swin --N 784", "compare vit swin --N 784"),
            ("train gpt2 --lora --lora-rank 8 --precision bf16", "analyze gpt2 --lora 8 --dtype bf16 --mode train"),
            ("train gpt2 --lora", "analyze gpt2 --lora 16 --mode train"),
            ("train gpt2 --zero 3 --num-gpus 8 --micro-batch-size 1",
             "analyze gpt2 --zero 3 --devices 8 --batch 1 --mode train --on h100-sxm"),
            ("kv gpt2 --seq-len 32k --kv-dtype fp8", "analyze gpt2 --N 32Ki --cache-dtype fp8 --mode decode"),
            ("validate a.yaml --strict --output-format github", "check a.yaml --format github"),
            ("lint a.yaml --budget b.yaml --junit a.xml", "check a.yaml --config b.yaml --format junit --output a.xml"),
            ("check a.yaml --update-baseline b.json", "analyze a.yaml --output b.json"),
            ("summary net.onnx --input-shape ids:1,512 mask:1,512",
             "analyze net.onnx --input ids=1,512 --input mask=1,512"),
            ('summary net.py:Net --kwargs {"dim":96,"name":"a"}',
             'analyze net.py:Net --build dim=96 --build name="a"'),
            ("time vit --repeat 5", "analyze vit --runs 5 --device cpu"),
            ("serve gpt2 --gpu l4 --input 512 --output 64",
             "analyze gpt2 --on l4 --N 512 --new-tokens 64 --mode generate"),
            ("serve gpt2 --gpu l4 --prompt 512 -o a.csv", "analyze gpt2 --on l4 --N 512 -o a.csv --mode decode"),
            ("summary vit --time --device cpu", "analyze vit --device cpu"),
            ("summary vit --time", "analyze vit --device cpu"),
            ("summary vit --by-op --memory", "analyze vit"),
            ("mem --model-id gpt2", "analyze gpt2 --on h100-sxm"),
            ("vit swin --match-params", "compare vit swin --match params"),
            ("scale vit --N 196,784 --plot a.png", "plot vit --N 196,784 --output a.png"),
            ("serve gpt2 --gpu l4 --context 8k --max-users", "analyze gpt2 --on l4 --N 8Ki --mode decode"),
            ("scale vit swin --sweep N=64,256", "plot vit swin --N 64,256"),
        ],
    )  # fmt: skip
    def test_words_of_other_tools_are_commands(self, words, meaning):
        flags = {name: _flags(command(name)) for name in COMMANDS}
        assert meant(words.split(), lambda name: flags.get(name, ())) == (meaning and meaning.split())

    def test_a_context_in_thousands_is_named_with_its_binary_number(self):
        def said(*words):
            return xf("analyze", "llama3-8b", "--no-trace", "--mode", "decode", *words).stderr

        assert "--N 32k is 32,000 tokens; 32,768 are --N 32Ki" in said("--N", "32k")
        assert not said("--N", "10k")
        assert "tokens 32,768" in xf("llama3-8b", "--context", "32k", "--mode", "decode").stdout

    def test_help_and_version_are_words_too(self):
        assert stdout_of("help") == stdout_of("--help")
        assert stdout_of("help", "find") == stdout_of("find", "--help")
        assert stdout_of("version") == stdout_of("--version")

    def test_a_model_alone_is_analyzed(self):
        assert xf("deit_tiny_patch16_224", "--no-trace").stdout == xf("analyze", "deit-ti", "--no-trace").stdout

    def test_what_does_not_fit_is_refused_with_its_bytes(self):
        # GPT-3's parameters alone take 174,604,259,328 × 4 bytes = 650.5 GiB.
        message = error_of("analyze", "gpt3", "--device", "cpu")
        assert int(re.search(r"needs ([\d,]+) bytes", message)[1].replace(",", "")) > 174_604_259_328 * 4
        assert "--no-trace" not in message


def heed_interrupts():
    """SIGINT as a terminal starts a process with it: a test run in the background ignores it, and so would a child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class TestTerminal:
    def test_colours_when_forced_and_none_with_no_color(self):
        coloured = xf("compare", "vit", "swin", FORCE_COLOR="1", TERM="xterm-256color").stdout
        assert "\x1b[31m" in coloured  # red, global
        assert "\x1b[32m" in coloured  # green, local
        plain = xf("compare", "vit", "swin", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", plain)

    @pytest.mark.parametrize("columns", ["80", "100", "140"])
    @pytest.mark.parametrize(
        "words",
        [
            "analyze swin --no-trace", "compare vit swin --N 784", "diff swin-t swin-s",
            "reach swin-t cvt-13 t5-small", "survey",
            "analyze llama3-70b --mode decode --N 32k --batch 16 --on nvidia --price 2 --mbu 60% --no-trace",
        ],
    )  # fmt: skip
    def test_fits_the_terminal(self, words, columns):
        out = stdout_of(*words.split(), COLUMNS=columns)
        assert max(map(len, out.splitlines())) <= int(columns)
        assert "…" not in out

    @pytest.mark.parametrize("columns", range(9))
    def test_a_terminal_without_room_gets_a_table(self, columns):
        assert "params" in stdout_of("analyze", "vit", "--no-trace", COLUMNS=str(columns))

    @pytest.mark.parametrize(
        "arguments",
        [["analyze", "swin", "--no-trace", "--format", "csv"], ["list"], ["show", "vit"], ["--help"], ["--version"]],
    )
    def test_a_closed_pipe_ends_quietly(self, arguments):
        producer = subprocess.Popen(
            words_of(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        producer.stdout.close()
        assert producer.stderr.read() == b""
        producer.stderr.close()
        assert producer.wait() == 141  # 128 + SIGPIPE; 1 would be a disagreement

    @pytest.mark.skipif(os.name != "posix", reason="SIGINT to a process")
    def test_ctrl_c_ends_without_a_traceback(self):
        words = words_of("analyze", "gpt3")
        running = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            preexec_fn=heed_interrupts,  # noqa: PLW1509
        )
        running.stderr.readline()  # "tracing GPT-3 175B …"
        while running.poll() is None:  # as fast as they can be sent, from the first until the process has ended
            running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=60)
        assert running.returncode == 130
        assert b"Traceback" not in said, said.decode()
        assert out == b""

    @pytest.mark.skipif(os.name != "posix", reason="SIGINT to a process")
    def test_an_interrupt_cleans_up_and_cannot_be_swallowed(self, tmp_path):
        begun = tmp_path / "begun"
        program = f"""
import os, signal
from xfcost.report.messages import cleaned_up_on_interrupt, end_on_interrupt
begun = {str(begun)!r}
end_on_interrupt()
with cleaned_up_on_interrupt(lambda: os.unlink(begun)), cleaned_up_on_interrupt(lambda: 1 / 0):
    open(begun, "w").close()
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # as torch's callbacks do
        pass
    while True:
        pass
"""
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment(), timeout=60, check=False, preexec_fn=heed_interrupts
        )
        assert done.returncode == 130
        assert not begun.exists()

    @pytest.mark.skipif(os.name != "posix", reason="SIGINT to a process")
    def test_an_interrupt_that_the_parent_ignores_stays_ignored(self):
        program = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
from xfcost.report.messages import end_on_interrupt
end_on_interrupt()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
        assert subprocess.run([sys.executable, "-c", program], env=environment(), check=False).returncode == 0

    def test_an_unexpected_exception_is_one_line_and_exit_code_70(self):
        program = """
import xfcost.cli
def fails():
    raise ValueError("two\\nlines")
xfcost.cli.app = fails
xfcost.cli.main()
"""

        def run(**more):
            words = [sys.executable, "-c", program]
            return subprocess.run(words, env=environment(**more), capture_output=True, text=True, check=False)

        done = run()
        assert done.returncode == 70
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "ValueError: two lines" in done.stderr
        assert "please report" in done.stderr
        assert "Traceback" in run(XFCOST_TRACEBACK="1").stderr


class TestOthers:
    def test_show_is_the_same_text_at_any_width(self):
        assert len({xf("show", "swinv2-g-w12-192", COLUMNS=columns).stdout for columns in ("30", "300")}) == 1

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_help_that_ends_with_an_example_it_can_read(self, name):
        assert (command(name).help or "").strip()
        out = xf(name, "--help").stdout
        assert "Usage:" in out
        *_, last = out.rstrip().splitlines()
        asked, words = last.strip().removeprefix("Example: xfcost ").split()[0], last.split()[3:]
        assert asked == name
        command(name).make_context(name, words, resilient_parsing=False)
        summary = next(line for line in xf("--help").stdout.splitlines() if line.split()[:1] == [name])
        assert not summary.endswith("..."), "the first sentence of the help is too long for the list of commands"

    def test_the_help_of_analyze_fits_a_screen_and_a_topic_has_the_rest(self):
        def headings(*topic):
            lines = xf("analyze", "--help", *topic, COLUMNS="80").stdout.splitlines()
            assert max(map(len, lines)) <= 80
            return len(lines), [line for line in lines if re.fullmatch(r"\w.*:", line)]

        lines, found = headings()
        assert lines <= 60
        assert found == ["Arguments:", "Size:", "Run:", "Output:", "More options:"]
        assert headings("serving")[1] == ["Devices and plan:"]
        assert headings("all")[1] == [
            "Arguments:", "Size:", "Run:", "Devices and plan:", "Training, with --mode train:",
            "Timing, with --device:", "Torch modules:", "Output:",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("words", "own"),
        [
            ("-N 196 --json", "--N 196 --format json"),
            ("--seq-len=196 --csv", "--N 196 --format csv"),
            ("--batch-size 2 --json -q", "--batch 2 --format json"),
            (
                "--mode train --on h100-sxm --checkpoint full --json",
                "--mode train --on h100-sxm --recompute full --json",
            ),
        ],
    )
    def test_words_of_other_tools_are_their_own(self, words, own):
        given = xf("analyze", "vit", "--no-trace", *words.split())
        assert given.stdout == xf("analyze", "vit", "--no-trace", *own.split()).stdout
        assert "-q" not in words or not given.stderr

    @pytest.mark.parametrize(
        ("command_name", "arguments", "option", "word"),
        [
            ("list", [], "--format", "latex"),
            *(("plot", ["gpt2"], "--mode", mode) for mode in ("prefill", "generate", "train")),
        ],
    )
    def test_help_names_no_word_that_is_refused(self, command_name, arguments, option, word):
        assert option in error_of(command_name, *arguments, option, word)
        assert not re.search(rf"\b{word}\b", xf(command_name, "--help").stdout)


def test_the_name_of_a_mechanism_is_its_model_of_the_common_family():
    assert xf("show", "full").stdout == xf("show", "common-full").stdout

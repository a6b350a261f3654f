"""``calib qat``: quantization-aware fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.common import (
    JsonFlag,
    PreprocessOption,
    QuietFlag,
    RootOption,
    SeedOption,
    VerboseFlag,
    WorkersOption,
    emit,
)

if TYPE_CHECKING:
    from calib.jobs.qat import QatResult

START, LENGTH, TRAINING, EXPORT = "Start", "Length", "Training", "Export"


def command(
    model: Annotated[str, typer.Argument(help="ONNX file of the float network, or module:factory.")],
    data: Annotated[str, typer.Option("--data", help="Manifest, image list, or name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    weights: Annotated[
        Path | None,
        typer.Option("--weights", help="Weights of the factory's network: .pt, .pth or .safetensors."),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Split to train on; default train.")] = None,
    val_split: Annotated[
        str | None,
        typer.Option("--val-split", help="Split to validate on, not the one reported; default: held-out images."),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option("--init", help="Build folder or file of ranges to start from.", rich_help_panel=START),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option("--calibrator", help="Whose ranges of --init; default the release's.", rich_help_panel=START),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="Passes over the images.", rich_help_panel=LENGTH)
    ] = 10,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Optimizer steps, instead of epochs.", rich_help_panel=LENGTH)
    ] = None,
    max_minutes: Annotated[
        float | None,
        typer.Option(
            "--max-minutes", help="Time for the quantized network, instead of epochs.", rich_help_panel=LENGTH
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Images a step and process.")] = 8,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate of the weights.", rich_help_panel=TRAINING)] = 5e-5,
    scale_lr: Annotated[
        float, typer.Option("--scale-lr", help="Learning rate of the scales' logarithms.", rich_help_panel=TRAINING)
    ] = 1e-3,
    optimizer: Annotated[str, typer.Option("--optimizer", help="adamw or sgd.", rich_help_panel=TRAINING)] = "adamw",
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Of weights.", rich_help_panel=TRAINING)] = 1e-4,
    clip: Annotated[
        float, typer.Option("--clip", help="Largest norm of the gradient; 0: no limit.", rich_help_panel=TRAINING)
    ] = 1.0,
    ema: Annotated[
        float, typer.Option("--ema", help="Decay of the weights' moving average; 0: none.", rich_help_panel=TRAINING)
    ] = 0.998,
    distill: Annotated[
        bool,
        typer.Option(
            "--distill/--no-distill", help="Learn from the float network's answers, too.", rich_help_panel=TRAINING
        ),
    ] = True,
    distill_weight: Annotated[
        float,
        typer.Option("--distill-weight", help="Share of the distillation in the loss, 0..1.", rich_help_panel=TRAINING),
    ] = 0.8,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Of the distillation.", rich_help_panel=TRAINING)
    ] = 2.0,
    backend: Annotated[
        str,
        typer.Option(
            "--backend", help="Whose fake quantization: calib or modelopt, for a factory.", rich_help_panel=TRAINING
        ),
    ] = "calib",
    learn_scales: Annotated[
        bool | None,
        typer.Option(
            "--learn-scales/--fixed-scales",
            help="Learn the activations' scales; default yes, modelopt no.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    learn_weight_scales: Annotated[
        bool,
        typer.Option(
            "--learn-weight-scales",
            help="Learn the weights' scales, else they follow the weights.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            "--freeze", help="Weights that stay, by name or node name: PATTERN with * and ?.", rich_help_panel=TRAINING
        ),
    ] = None,
    scale_bits: Annotated[
        int | None,
        typer.Option(
            "--scale-bits",
            min=2,
            max=24,
            help="Significant bits of the scales; few make sums exact, so that runtimes agree; default 5; 24: all.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Fine-tune the float network alike, to compare with.")
    ] = True,
    augment: Annotated[
        bool, typer.Option("--augment/--no-augment", help="Flip and crop at random.", rich_help_panel=TRAINING)
    ] = True,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", help="best or last; default best with --val-split, else last.", rich_help_panel=TRAINING
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            min=0,
            help="Validations without improvement before stopping; 0: never.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", help="fp32, fp16 or bf16; default fp16 on a GPU.", rich_help_panel=TRAINING),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    output_name: Annotated[
        str | None, typer.Option("--output-name", help="Which output is trained.", rich_help_panel=EXPORT)
    ] = None,
    exporter: Annotated[
        str, typer.Option("--exporter", help="torchscript or dynamo, for a factory.", rich_help_panel=EXPORT)
    ] = "torchscript",
    opset: Annotated[
        int | None,
        typer.Option("--opset", min=13, max=20, help="Of the export; default 17, dynamo 18.", rich_help_panel=EXPORT),
    ] = None,
    dynamic_size: Annotated[
        bool, typer.Option("--dynamic-size", help="Leave height and width open.", rich_help_panel=EXPORT)
    ] = False,
    fixed_batch: Annotated[
        bool, typer.Option("--fixed-batch", help="Export for one image at a time.", rich_help_panel=EXPORT)
    ] = False,
    trt_version: Annotated[
        str, typer.Option("--trt-version", help="TensorRT version the cache is headed for.", rich_help_panel=EXPORT)
    ] = "10.14.1",
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-float",
            help="Layers that stay in float: PATTERN with * and ?, or @FILE of them; the build's of --init do anyway.",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="Q/DQ placement rules: trt10, trt11 or ort.", rich_help_panel=EXPORT)
    ] = "trt10",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Fine-tune a network with fake quantization where TensorRT quantizes, and export it with Q/DQ.

    Killed at any point, the same command goes on where it stopped.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.qat import QatRequest, run_qat

    request = QatRequest(
        model=model,
        data=data,
        output=output,
        weights=weights,
        split=split,
        val_split=val_split,
        init=init,
        calibrator=calibrator,
        epochs=epochs,
        steps=steps,
        max_minutes=max_minutes,
        batch_size=batch_size,
        lr=lr,
        scale_lr=scale_lr,
        optimizer=optimizer,
        weight_decay=weight_decay,
        clip=clip,
        ema=ema,
        distill=distill_weight if distill else 0.0,
        temperature=temperature,
        backend=backend,
        learn_scales=learn_scales,
        learn_weight_scales=learn_weight_scales,
        freeze=tuple(freeze or ()),
        scale_bits=scale_bits,
        control=control,
        augment=augment,
        keep=keep,
        patience=patience,
        precision=precision,
        output_name=output_name,
        exporter=exporter,
        opset=opset,
        dynamic_size=dynamic_size,
        fixed_batch=fixed_batch,
        seed=seed,
        root=root,
        preprocess=preprocess,
        workers=workers,
        device=device,
        trt_version=trt_version,
        keep_float=tuple(keep_float or ()),
        target=target,  # type: ignore[arg-type]  # the job checks it
    )
    result = run_qat(request, choose_progress(quiet=quiet))
    if result.document:  # empty in all processes but the first
        emit(_document(result), as_json=as_json, text=_text(result))


def _document(result: QatResult) -> dict[str, Any]:
    return {"folder": str(result.folder), "reused": result.reused, **result.document}


def _text(result: QatResult) -> str:
    lines = list(result.summary())
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in lines)

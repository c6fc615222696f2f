"""Side by side with the peers, one command each; every command takes `--json`.

    python -m benchmarks.compile_time --config baby --peers tinygrad   trace, schedule and generate code, cold
    python -m benchmarks.train_step   --config baby --peers torch      a training step, interleaved rounds
    python -m benchmarks.matmul       --device webgpu --peers torch    products of matrices and convolution, TFLOP/s
    python -m benchmarks.memory_bound --device webgpu --peers torch    what memory bounds, GB/s beside a copy
    python -m benchmarks.onnx_peers FOLDER                             ONNX files beside ONNX Runtime
    python -m benchmarks.cpu_steps --torch PYTHON                      steps and runs on the cpu, a line for each figure
    python -m benchmarks.memory                                        resident size over 1000 steps
    python -m benchmarks.memory       --device webgpu --peers torch    peak memory of training steps; --plan: no device
    python -m benchmarks.startup                                       imports and `anneal --help`

Only ratios taken in one run mean something on a shared machine; the interleaving is there for that.
"""

"""The commands: a line each for help, and the file that has it with its flags, imported when the command is wanted."""

from anneal.doors import pairs

# Help lists them in this order. The lines stand here so that help builds no command; tests hold them against the files.
COMMANDS = dict(
    line.split(maxsplit=1)
    for line in """\
doctor   List this machine's devices, and what is missing.
train    Train an example model, then show a sample.
data     Make files of tokens to train on.
launch   Start a command or a script in several processes, by mpirun.
graph    Print the graph of a training step, or what a pass makes of it.
kernels  Print the fused kernels of a model, with their cost or times.
explain  Print the rewrite rules of an op, or those that fire for a model.
web      Serve the studio, a web page of graphs, kernels and times.
viz      Open the studio at the graph of a model.
record   Run a script, and list or save every plan that it runs.
check    Compare kernels and values with float64.
gpt2     Generate text with GPT-2 small, or another checkpoint.
run      Run a trained model.
export   Write a model as a web page that runs it in any browser.
fit      Say whether a model fits a browser's limits, and its memory.
onnx     Import, run, check and export ONNX models.
cache    Inspect and prune the compilation cache on disk.
""".splitlines()
)
# The others have a file of their own name.
FILES = pairs("""
    cache=doctor check=record data=gpt2 fit=export graph=explain kernels=explain launch=record viz=web
""")

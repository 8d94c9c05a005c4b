"""What `ci/bench` measures. Each module but three is one group of figures: a function from `Setting` to `Figure`s.

How a comparison is made. Both sides run in one process, on one file system, with the same payloads, in turns (A B,
then B A, and so on), and the figure is the median over the turns of the ratio within a turn: what slows the machine
down for a while slows both. A turn is long enough to pay for what a side puts off (checkpoints there, the next file's
zeros here).
A figure is judged only if it has a must; the others are printed for what they explain.
"""

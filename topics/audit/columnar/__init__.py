"""Many records at once: NumPy and Arrow, imported only where they are installed.

arrow_batches  frames as Arrow record batches: the shape in which Spark, and whoever else reads columns, gets
               records
frame_heads    the heads of many frames as one NumPy array, and which of the frames are what an index says they
               are
labels         what the records of a segment have beside their data, by NumPy: read from all frames at once and
               held against `.col`
numpy_sorting  `order.sort_columns` by NumPy
numpy_walk     a segment that is whole, all of its records at once by NumPy: what `codec.segments.segment.walk`
               gives, several times as fast
sorting        two columns by the first of them: a client tells what was acknowledged in the order in which its
               answers came
"""

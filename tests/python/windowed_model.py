"""Writes a copy of a GGUF model whose layers have sliding windows."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # size of a value by type
UINT32, STRING, ARRAY = 4, 8, 9


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, form):
        return struct.unpack("<" + form, self.file.read(struct.calcsize(form)))[0]

    def text(self):
        return self.file.read(self.number("Q"))

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(of)
        else:
            self.file.seek(SIZES[kind], 1)


def entry(key, value):
    return struct.pack("<Q", len(key)) + key + struct.pack("<II", UINT32, value)


def write_windowed(source, target, window, period):
    """Gives each layer the window, except each period-th, which has full attention (0: all layers have the window)."""
    with open(source, "rb") as file:
        reader = Reader(file)
        head = file.read(8)
        num_tensors, num_entries = reader.number("Q"), reader.number("Q")
        entries_begin = file.tell()
        architecture, alignment = b"", 32
        for _ in range(num_entries):
            key, kind = reader.text(), reader.number("I")
            if key == b"general.architecture":
                architecture = reader.text()
            elif key == b"general.alignment":
                alignment = reader.number("I")
            else:
                reader.skip(kind)
        tensors_begin = file.tell()
        for _ in range(num_tensors):
            reader.text()
            file.seek(8 * reader.number("I") + 4 + 8, 1)
        tensors_end = file.tell()
        file.seek(entries_begin)
        entries, tensors = file.read(tensors_begin - entries_begin), file.read(tensors_end - tensors_begin)
        file.seek(-(-tensors_end // alignment) * alignment)
        data = file.read()
    added = [entry(architecture + b".attention.sliding_window", window)]
    if period > 0:
        added.append(entry(architecture + b".attention.sliding_window_pattern", period))
    front = head + struct.pack("<QQ", num_tensors, num_entries + len(added)) + entries + b"".join(added) + tensors
    with open(target, "wb") as file:
        file.write(front + bytes(-len(front) % alignment) + data)

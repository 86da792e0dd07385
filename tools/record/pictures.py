"""Records the pixels that Pillow decodes from small images, and the tiles that transformers cuts them into.

Needs pillow==11.3.0, transformers==4.57.6, torch==2.10.0 and numpy.

The record keeps the encoded images, because the output of encoders differs between versions. Pixels are recorded as the SHA-256 of their
bytes. Each image is first converted to RGB as in vLLM: an RGBA image is pasted on white, and all other modes are converted.
"""
import hashlib

import numpy as np
from PIL import Image
from transformers import CLIPImageProcessor, Gemma3ImageProcessor, Idefics3ImageProcessor, Qwen2VLImageProcessor, SiglipImageProcessor

OUT = "pictures"
RESIZES = [("rgb.png", 50, 31, 1), ("rgb.png", 17, 64, 2), ("rgb.png", 90, 70, 3), ("rgb.png", 5, 3, 4), ("rgb.png", 29, 11, 5),
           ("rgb.png", 37, 8, 1), ("rgb.png", 9, 23, 3), ("jpeg_420.jpg", 200, 100, 1), ("line.png", 64, 64, 1)]
# name, do_image_splitting, longest edge, side of a tile
IDEFICS3 = [("rgb.png", True, 64, 16), ("rgb.png", False, 64, 16), ("rgb.png", True, 16, 16), ("line.png", True, 64, 16),
            ("tall.png", True, 96, 32), ("jpeg_420.jpg", True, 50, 20), ("grey.png", True, 48, 24)]
# name, shorter side before the centre crop (0: the image is scaled to a square), side, number of the resampling filter
LLAVA = [("rgb.png", 20, 20, 3), ("rgb.png", 31, 16, 3), ("tall.png", 14, 14, 3), ("line.png", 9, 9, 3), ("jpeg_420.jpg", 37, 36, 2),
         ("rgb.png", 23, 23, 3), ("tall.png", 11, 10, 3), ("rgb.png", 0, 28, 3), ("tall.png", 0, 11, 3), ("grey.png", 0, 37, 2)]
# name, side
GEMMA3 = [("rgb.png", 28), ("tall.png", 14), ("line.png", 50), ("grey.png", 11)]
# name, smallest and largest number of pixels, side of a patch, patches per side of a merged block
QWEN_VL = [("rgb.png", 64, 65536, 4, 2), ("rgb.png", 64, 300, 4, 2), ("rgb.png", 3136, 65536, 14, 2), ("line.png", 64, 65536, 4, 2),
           ("line.png", 4096, 65536, 4, 2), ("tall.png", 64, 512, 4, 2), ("tall.png", 3136, 65536, 14, 2), ("jpeg_420.jpg", 1, 65536, 3, 2),
           ("grey.png", 1000, 1100, 5, 2)]


def values(width, height, channels, seed):
    """Returns the values of an image of smooth shapes with some noise, computed from integers."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    noise = (x * 7919 + y * 104729 + c * 1299709 + seed * 15485863) % 61
    return ((x * (5 + c) + y * (3 + 2 * c) + (x * y) // 7 + noise) % 256).astype(np.uint8)


def make(folder):
    def save(name, image, **options):
        image.save(folder / name, **options)

    rgb = Image.fromarray(values(37, 23, 3, 1))
    rgba = Image.fromarray(values(37, 23, 4, 2))
    palette = rgb.quantize(40)
    save("rgb.png", rgb)
    save("rgba.png", rgba)
    save("palette.png", palette)
    save("palette_clear.png", palette, transparency=3)
    save("grey.png", rgb.convert("L"))
    save("grey_alpha.png", rgba.convert("LA"))
    save("bits.png", rgb.convert("1"))
    save("line.png", Image.fromarray(values(40, 1, 3, 3)))
    save("tall.png", Image.fromarray(values(11, 90, 3, 4)))
    save("jpeg_444.jpg", rgb, quality=92, subsampling=0)
    save("jpeg_420.jpg", rgb, quality=80, subsampling=2)
    save("jpeg_progressive.jpg", rgb, quality=85, progressive=True)
    save("jpeg_grey.jpg", rgb.convert("L"), quality=85)
    save("cmyk.jpg", rgb.convert("CMYK"), quality=85)
    save("lossy.webp", rgb, quality=70)
    save("lossless.webp", rgb, lossless=True)
    save("alpha.webp", rgba, lossless=True, exact=True)
    save("animated.webp", rgb, save_all=True, append_images=[rgb.rotate(180)], duration=40)
    save("plain.gif", palette)
    save("animated.gif", palette, save_all=True, append_images=[rgb.rotate(180).quantize(40)], duration=40)


def load(path):
    image = Image.open(path)
    if image.mode == "RGBA":
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.split()[3])
        return white
    return image.convert("RGB")


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def main(out):
    out.mkdir(exist_ok=True)
    if not (out / "rgb.png").exists():
        make(out)
    lines = []
    for path in sorted(out.iterdir()):
        if path.suffix == ".txt" or path.name in ("cmyk.jpg", "animated.webp"):
            continue
        image = load(path)
        lines.append(f"decode {path.name} {image.width} {image.height} {digest(np.array(image))}")
    for name, width, height, number in RESIZES:
        image = load(out / name).resize((width, height), resample=number)
        lines.append(f"resample {name} {width} {height} {number} {digest(np.array(image))}")
    for name, splits, edge, side in IDEFICS3:
        processor = Idefics3ImageProcessor(size={"longest_edge": edge}, max_image_size={"longest_edge": side}, do_image_splitting=splits,
                                           do_rescale=False, do_normalize=False)
        out = processor(load(out / name), return_tensors="np", return_row_col_info=True, input_data_format="channels_last")
        tiles = out["pixel_values"][0].astype(np.uint8).transpose(0, 2, 3, 1)
        lines.append(f"idefics3 {name} {int(splits)} {edge} {side} {out['rows'][0][0]} {out['cols'][0][0]} {digest(tiles)}")
    for name, shortest, side, number in LLAVA:
        if shortest > 0:
            processor = CLIPImageProcessor(size={"shortest_edge": shortest}, crop_size={"height": side, "width": side}, resample=number,
                                           do_rescale=False, do_normalize=False)
        else:
            processor = SiglipImageProcessor(size={"height": side, "width": side}, resample=number, do_rescale=False, do_normalize=False)
        out = processor(load(out / name), return_tensors="np", input_data_format="channels_last")
        tile = out["pixel_values"][0].astype(np.uint8).transpose(1, 2, 0)
        lines.append(f"llava {name} {shortest} {side} {number} {digest(tile)}")
    for name, side in GEMMA3:
        processor = Gemma3ImageProcessor(size={"height": side, "width": side}, do_rescale=False, do_normalize=False)
        out = processor(load(out / name), return_tensors="np", input_data_format="channels_last")
        lines.append(f"gemma3 {name} {side} {digest(out['pixel_values'][0].astype(np.uint8).transpose(1, 2, 0))}")
    for name, least, most, patch, merge in QWEN_VL:
        processor = Qwen2VLImageProcessor(min_pixels=least, max_pixels=most, patch_size=patch, merge_size=merge, do_rescale=False,
                                          do_normalize=False)
        out = processor(load(out / name), return_tensors="np", input_data_format="channels_last")
        _, rows, columns = (int(size) // merge for size in out["image_grid_thw"][0])
        # [row][column of embeddings][row][column of patches in an embedding][colour][frame][row][column of pixels]
        patches = out["pixel_values"].astype(np.uint8).reshape(rows, columns, merge, merge, 3, 2, patch, patch)
        assert (patches[:, :, :, :, :, 0] == patches[:, :, :, :, :, 1]).all()
        side = patch * merge
        image = patches[:, :, :, :, :, 0].transpose(0, 2, 5, 1, 3, 6, 4).reshape(rows * side, columns * side, 3)
        lines.append(f"qwen_vl {name} {least} {most} {side} {rows} {columns} {digest(image)}")
    (out / "cases.txt").write_text("\n".join(lines) + "\n")

// Files that the next message will have: images of a chat, or one audio file to transcribe.
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

const attachments = {images: [], audio: null};
const audioFiles = new WeakMap();  // message -> File. Audio is not stored in the browser.

const accepts = kind => inputsOfModel().includes(kind);

function dataUrlOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

async function attachFiles(files) {
  for (const file of files) {
    if (accepts("image") && IMAGE_TYPES.includes(file.type)) {
      try { attachments.images.push({name: file.name || "image", url: await dataUrlOf(file)}); }
      catch { notice(`${file.name}: the browser cannot read this file.`); }
    } else if (accepts("audio") && file.type.startsWith("audio/")) attachments.audio = file;
    else notice(accepts("image") ? `${file.name}: attach a PNG, JPEG, WebP or GIF image.` : accepts("audio") ? `${file.name}: attach an audio file.` : "This model accepts text only.");
  }
  showAttachments();
}

function showAttachments() {
  const list = by("attachments"), entries = [];
  const add = (name, url, remove) => {
    const item = make(null, "li");
    if (url) showImage(item, {name, url});
    make(item, "span", name);
    actionButton(item, "Remove", "Remove " + name, () => { remove(); showAttachments(); by("text").focus(); });
    entries.push(item);
  };
  for (const image of attachments.images) add(image.name, image.url, () => { attachments.images = attachments.images.filter(one => one !== image); });
  if (attachments.audio) add(attachments.audio.name, null, () => { attachments.audio = null; });
  list.replaceChildren(...entries);
  list.hidden = !entries.length;
}

// Shows an image of a data URL.
function showImage(parent, image) {
  if (!isImageUrl(image.url)) return;
  const element = make(parent, "img");
  element.setAttribute("src", image.url);
  element.setAttribute("alt", image.name);
}

function showAttachButton() {
  const isOffered = accepts("image") || accepts("audio");
  by("attach").hidden = !isOffered;
  by("attach").setAttribute("aria-label", accepts("audio") ? "Attach audio" : "Attach images");
  by("file").accept = accepts("audio") ? "audio/*" : IMAGE_TYPES.join(",");
  by("file").multiple = accepts("image");
  if (!accepts("image")) attachments.images = [];
  if (!accepts("audio")) attachments.audio = null;
  by("text").placeholder = accepts("text") ? "Message" : "Attach audio to transcribe. Text here can give the spelling of names.";
  setText(by("welcome").querySelector(".title"), accepts("text") ? "Ask something." : "Transcribe audio.");
  showAttachments();
}

by("attach").addEventListener("click", () => by("file").click());
by("file").addEventListener("change", async () => { await attachFiles(by("file").files); by("file").value = ""; by("text").focus(); });
by("text").addEventListener("paste", event => {
  if (!event.clipboardData.files.length) return;
  event.preventDefault();
  attachFiles(event.clipboardData.files);
});
addEventListener("dragover", event => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
addEventListener("drop", event => {
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  attachFiles(event.dataTransfer.files);
});

// Search runs in a worker, and browsers give none to pages that were opened from a folder. There it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      const waiting = [];
      let ready = false;
      const tell = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...scripts) => scripts.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      const load = (source) => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        script.src = source;
        script.onload = done;
        script.onerror = failed;
        inside.document.body.append(script);
      });
      this.postMessage = (data) => (ready ? tell(data) : waiting.push(data));
      load(url).then(() => {
        ready = true;
        waiting.splice(0).forEach(tell);
      });
    }
    terminate() {}
  };
}

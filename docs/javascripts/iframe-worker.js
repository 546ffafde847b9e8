/* A page opened from disk (file://) may not start a web worker. Search then runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((loaded) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = loaded;
        inside.document.appendChild(inside.document.createElement("html")).appendChild(script);
      });
      inside.document.close();
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.loaded.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}

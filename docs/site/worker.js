// Lets the search work in pages that are opened as files, for which browsers refuse workers: the worker's script runs in a
// frame instead. Pages of a web server keep their workers.
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe");
    #waiting = [];
    #isReady = false;

    constructor(url) {
      this.#frame.hidden = true;
      this.#frame.addEventListener("load", () => this.#start(new URL(url, document.baseURI)), { once: true });
      document.documentElement.append(this.#frame);
    }

    postMessage(data) {
      if (this.#isReady) this.#deliver(data);
      else this.#waiting.push(data);
    }

    terminate() {
      this.#frame.remove();
    }

    #start(url) {
      const inside = this.#frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.#isReady = true;
        this.#waiting.forEach((data) => this.#deliver(data));
      };
      inside.document.head.append(script);
    }

    #deliver(data) {
      const inside = this.#frame.contentWindow;
      setTimeout(() => inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) })));
    }
  };
}

// A pointer on a time axis: hover tells, a drag pans, wheel and pinch zoom, a click opens.
const DRAG_PIXELS = 4;
const DOUBLE_CLICK_MS = 260;

function move_with_pointer(element, axis) {
  const down = new Map();
  let dragged = false;
  let waiting = 0;
  const pinch = () => {
    const [one, other] = [...down.values()];
    return { width: Math.max(1, Math.abs(one - other)), middle: (one + other) / 2 };
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    if (!down.size) dragged = false;
    down.set(event.pointerId, event.clientX);
  });
  element.addEventListener("pointermove", (event) => {
    if (!down.has(event.pointerId)) {
      axis.tell(axis.time(event.clientX));
      return;
    }
    const by = event.clientX - down.get(event.pointerId);
    if (down.size === 2) {
      const before = pinch();
      down.set(event.pointerId, event.clientX);
      axis.zoom(before.width / pinch().width, axis.time(before.middle));
    } else if (dragged || Math.abs(by) > DRAG_PIXELS) {
      if (!dragged) element.setPointerCapture(event.pointerId);
      down.set(event.pointerId, event.clientX);
      axis.pan(-axis.seconds(by));
    } else return;
    dragged = true;
  });
  const up = (event) => down.delete(event.pointerId);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", (event) => { up(event); axis.leave(); });
  element.addEventListener("wheel", (event) => {
    const lines = event.deltaMode ? 16 : 1;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) axis.pan(axis.seconds(event.deltaX * lines));
    else if (event.deltaY > 0 && axis.is_whole()) return; // the page scrolls
    else axis.zoom(Math.exp(event.deltaY * lines * 0.002), axis.time(event.clientX));
    event.preventDefault();
  }, { passive: false });
  element.addEventListener("click", (event) => {
    clearTimeout(waiting);
    if (dragged || event.detail > 1) return;
    const [seconds, clip] = [axis.time(event.clientX), event.target.dataset.clip];
    const open = () => axis.open(seconds, clip === undefined ? undefined : Number(clip));
    if (axis.is_whole()) open(); // a double click has nothing to reset
    else waiting = setTimeout(open, DOUBLE_CLICK_MS);
  });
  element.addEventListener("dblclick", () => axis.reset());
}

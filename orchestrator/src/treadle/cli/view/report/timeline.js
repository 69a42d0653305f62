"use strict";
(() => {
  const all = JSON.parse(document.getElementById("attempts").textContent);
  const holder = document.getElementById("timeline"), canvas = holder.querySelector("canvas"), tip = document.getElementById("tip");
  const count = all.start.length, failed = new Set(all.failed);
  if (!count) { holder.textContent = "No attempt is on record."; return; }

  const end = all.start.reduce((latest, start, i) => Math.max(latest, start + all.length[i]), 1);
  const lane = Math.max(2, Math.min(18, Math.floor(640 / all.slots.length)));
  const left = lane < 9 ? 8 : Math.min(220, 14 + 7 * all.slots.reduce((most, slot) => Math.max(most, slot.length), 0));
  const axis = 22, height = axis + lane * all.slots.length;
  let from = 0, to = end, dragged = null, width = 0;

  const x = (time) => left + ((time - from) / (to - from)) * (width - left);
  const time = (pixel) => from + ((pixel - left) / (width - left)) * (to - from);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const words = (ms) => ms >= 60000 ? `${Math.floor(ms / 60000)} min ${(ms % 60000 / 1000).toFixed(0)} s` : ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(1)} ms`;

  function step(span) {
    const rough = span / Math.max(2, width / 120), unit = 10 ** Math.floor(Math.log10(rough));
    return unit * [1, 2, 5, 10].find((times) => times * unit >= rough);
  }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    width = holder.clientWidth;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = "11px system-ui, sans-serif";
    ruler(pen);
    const fills = Array.from({length: 8}, (_, i) => colour(`--c${i}`)), bad = colour("--bad"), inset = lane > 5 ? 1 : 0;
    for (let i = 0; i < count; i++) {
      const begin = all.start[i], stop = begin + all.length[i];
      if (stop < from || begin > to) continue;
      const a = Math.max(left, x(begin)), b = Math.min(width, x(stop)), y = axis + all.slot[i] * lane + inset;
      pen.fillStyle = fills[all.colours[all.node[i]]];
      pen.fillRect(a, y, Math.max(0.6, b - a - (b - a > 4 ? 1 : 0)), lane - 2 * inset);
      if (failed.has(i)) { pen.strokeStyle = bad; pen.lineWidth = 2; pen.strokeRect(a + 1, y + 1, Math.max(2, b - a - 3), lane - 2 * inset - 2); }
    }
    if (dragged) { pen.fillStyle = colour("--busy"); pen.globalAlpha = 0.2; pen.fillRect(Math.min(...dragged), axis, Math.abs(dragged[1] - dragged[0]), height); pen.globalAlpha = 1; }
  }

  function ruler(pen) {
    const every = step(to - from);
    pen.strokeStyle = colour("--line");
    pen.fillStyle = colour("--quiet");
    pen.lineWidth = 1;
    for (let at = Math.ceil(from / every) * every; at <= to; at += every) {
      const pixel = Math.round(x(at)) + 0.5;
      pen.beginPath(); pen.moveTo(pixel, axis - 5); pen.lineTo(pixel, height); pen.stroke();
      if (pixel < width - 40) pen.fillText(at ? words(at) : "0", pixel + 3, 12);
    }
    if (lane >= 9) all.slots.forEach((slot, i) => pen.fillText(slot, 0, axis + i * lane + lane / 2 + 4, left - 8));
  }

  function under(event) {
    const area = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - area.top - axis) / lane), at = time(event.clientX - area.left), near = (to - from) / width;
    for (let i = count - 1; i >= 0; i--) {
      if (all.slot[i] === row && all.start[i] <= at + near && all.start[i] + all.length[i] >= at - near) return i;
    }
    return -1;
  }

  function show(event) {
    const i = under(event), area = canvas.getBoundingClientRect();
    tip.hidden = i < 0 || dragged !== null;
    if (tip.hidden) return;
    tip.textContent = `${all.nodes[all.node[i]]}[${all.partition[i]}] attempt ${all.attempt[i]}${failed.has(i) ? ", failed" : ""}\n${words(all.length[i])}, from ${words(all.start[i])}\n${all.slots[all.slot[i]]}`;
    tip.style.left = `${Math.min(event.clientX - area.left + 12, width - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.clientY - area.top + 14}px`;
  }

  canvas.addEventListener("pointerdown", (event) => { const at = event.clientX - canvas.getBoundingClientRect().left; dragged = [at, at]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (dragged) { dragged[1] = event.clientX - canvas.getBoundingClientRect().left; draw(); }
    show(event);
  });
  canvas.addEventListener("pointerup", () => {
    if (!dragged) return;
    const [a, b] = dragged.map(time).sort((p, q) => p - q), far = Math.abs(dragged[1] - dragged[0]) > 4;
    dragged = null;
    if (far) { from = Math.max(0, a); to = Math.min(end, b); }
    draw();
  });
  canvas.addEventListener("pointercancel", () => { dragged = null; draw(); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", () => { from = 0; to = end; draw(); });
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();

// The drawing of a graph: pan, zoom, and a way through it by keys. Only the transform of one element moves.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { visible, type Box, type Item, type View } from "./groups";
import { layout, type Layout } from "./layout";

interface Props {
  items: Item[];
  open: Set<string>;
  selected: string | null;
  related: Set<string>;
  onSelect: (box: Box) => void;
  onOpen: (box: Box) => void;
  label: string;
}

interface Camera { x: number; y: number; k: number }

export function Canvas(props: Props) {
  const view = useMemo(() => visible(props.items, props.open), [props.items, [...props.open].sort().join("|")]);
  const [placed, setPlaced] = useState<{ view: View; layout: Layout } | null>(null);
  const [failed, setFailed] = useState("");
  useEffect(() => {
    let over = false;
    layout(view).then(
      (found) => over || (setPlaced({ view, layout: found }), setFailed("")),
      (error) => over || setFailed(String((error as Error)?.message ?? error)),
    );
    return () => {
      over = true;
    };
  }, [view]);
  if (failed) return <p class="failed" role="alert">The layout failed: {failed}. The table shows the same graph.</p>;
  if (!placed) return <p class="waiting" role="status"><span class="spin" aria-hidden="true" /> laying out {view.boxes.length} boxes</p>;
  return <Drawing {...props} view={placed.view} layout={placed.layout} />;
}

function Drawing(props: Props & { view: View; layout: Layout }) {
  const { view, layout } = props;
  const frame = useRef<SVGSVGElement>(null);
  const stage = useRef<SVGGElement>(null);
  const camera = useRef<Camera>({ x: 0, y: 0, k: 1 });
  const moved = useRef(false);
  const anchor = useRef<{ key: string; x: number; y: number } | null>(null); // what is to stay where it is seen
  const [focus, setFocus] = useState<string | null>(null);

  const apply = () => {
    const { x, y, k } = camera.current;
    stage.current!.style.transform = `translate(${x}px, ${y}px) scale(${k})`;
  };
  const fit = () => {
    const { clientWidth: w, clientHeight: h } = frame.current!;
    const wide = (w - 48) / layout.width;
    const k = Math.max(Math.min(wide, (h - 48) / layout.height, 1), Math.min(0.8, wide), 0.05);
    camera.current = { k, x: (w - layout.width * k) / 2, y: layout.height * k < h - 48 ? (h - layout.height * k) / 2 : 20 };
    apply();
  };
  useLayoutEffect(() => {
    const at = anchor.current && layout.boxes.get(anchor.current.key);
    if (at) {
      const c = camera.current;
      camera.current = { k: c.k, x: anchor.current!.x - at.x * c.k, y: anchor.current!.y - at.y * c.k };
      apply();
    } else if (!moved.current) fit();
    else apply();
    anchor.current = null;
  }, [layout]);
  useEffect(() => {
    const at = props.selected ? layout.boxes.get(props.selected) : null;
    if (at) show(at);
  }, [props.selected, layout]);

  const show = (at: { x: number; y: number; w: number; h: number }) => {
    const { clientWidth: w, clientHeight: h } = frame.current!;
    const c = camera.current;
    if (c.k < 0.7) c.k = 0.85;
    const [x, y] = [at.x * c.k + c.x, at.y * c.k + c.y];
    const [bw, bh] = [Math.min(at.w * c.k, w), Math.min(at.h * c.k, h)];
    if (x < 16 || x + bw > w - 16) c.x = w / 2 - (at.x + at.w / 2) * c.k;
    if (y < 16 || y + bh > h - 16) c.y = h / 2 - (at.y + Math.min(at.h, h / c.k) / 2) * c.k;
    apply();
  };
  // The corner of a module that is opened or closed stays where it is.
  const toggle = (box: Box) => {
    const [at, c] = [layout.boxes.get(box.key), camera.current];
    if (at) anchor.current = { key: box.key, x: Math.max(20, at.x * c.k + c.x), y: Math.max(20, at.y * c.k + c.y) };
    moved.current = true;
    props.onOpen(box);
  };
  const zoom = (by: number, px?: number, py?: number) => {
    const c = camera.current;
    const { clientWidth: w, clientHeight: h } = frame.current!;
    const [x, y] = [px ?? w / 2, py ?? h / 2];
    const k = Math.min(3, Math.max(0.05, c.k * by));
    camera.current = { k, x: x - ((x - c.x) * k) / c.k, y: y - ((y - c.y) * k) / c.k };
    moved.current = true;
    apply();
  };
  useEffect(() => {
    const svg = frame.current!;
    let from: { x: number; y: number; id: number } | null = null;
    const wheel = (e: WheelEvent) => {
      e.preventDefault();
      moved.current = true;
      if (e.ctrlKey || e.metaKey || !e.shiftKey) {
        const r = svg.getBoundingClientRect();
        zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0015)), e.clientX - r.left, e.clientY - r.top);
      } else {
        camera.current.x -= e.deltaY;
        apply();
      }
    };
    const press = (e: PointerEvent) => {
      if (e.button) return;
      from = { x: e.clientX - camera.current.x, y: e.clientY - camera.current.y, id: e.pointerId };
    };
    const drag = (e: PointerEvent) => {
      if (!from || e.pointerId !== from.id) return;
      const [x, y] = [e.clientX - from.x, e.clientY - from.y];
      if (!svg.hasPointerCapture(from.id)) {
        if (Math.hypot(x - camera.current.x, y - camera.current.y) < 5) return;
        svg.setPointerCapture(from.id);
        svg.classList.add("dragging");
      }
      moved.current = true;
      camera.current = { ...camera.current, x, y };
      apply();
    };
    const release = () => {
      from = null;
      svg.classList.remove("dragging");
    };
    svg.addEventListener("wheel", wheel, { passive: false });
    svg.addEventListener("pointerdown", press);
    svg.addEventListener("pointermove", drag);
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    return () => {
      svg.removeEventListener("wheel", wheel);
      svg.removeEventListener("pointerdown", press);
      svg.removeEventListener("pointermove", drag);
      svg.removeEventListener("pointerup", release);
      svg.removeEventListener("pointercancel", release);
    };
  }, []);

  const fitting = useRef(fit);
  fitting.current = fit;
  useEffect(() => {
    const watch = new ResizeObserver(() => { if (frame.current && !moved.current) fitting.current(); });
    watch.observe(frame.current!);
    return () => watch.disconnect();
  }, []);

  const byKey = useMemo(() => new Map(view.boxes.map((b) => [b.key, b])), [view]);
  const first = props.selected && byKey.has(props.selected) ? props.selected : focus && byKey.has(focus) ? focus : view.boxes[0]?.key;
  const step = (box: Box, key: string): boolean => {
    const at = layout.boxes.get(box.key)!;
    const [cx, cy] = [at.x + at.w / 2, at.y + at.h / 2];
    const dir = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
    if (!dir) return false;
    let best: string | null = null;
    let least = Infinity;
    for (const [other, o] of layout.boxes) {
      if (other === box.key) continue;
      const [dx, dy] = [o.x + o.w / 2 - cx, o.y + o.h / 2 - cy];
      const along = dx * dir[0]! + dy * dir[1]!;
      if (along <= 1) continue;
      const across = Math.abs(dx * dir[1]!) + Math.abs(dy * dir[0]!);
      if (along + across * 2 < least) [least, best] = [along + across * 2, other];
    }
    if (best === null) return true;
    setFocus(best);
    const next = frame.current!.querySelector<SVGGElement>(`[data-key="${CSS.escape(best)}"]`);
    next?.focus({ preventScroll: true });
    show(layout.boxes.get(best)!);
    return true;
  };
  const keys = (e: KeyboardEvent, box: Box) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (step(box, e.key)) return e.preventDefault();
    if (e.key === "Enter") props.onSelect(box);
    else if ((e.key === " " || e.key === "o") && box.group) toggle(box);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const frameKeys = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "+" || e.key === "=") zoom(1.25);
    else if (e.key === "-") zoom(0.8);
    else if (e.key === "0") {
      moved.current = false;
      fit();
    } else return;
    e.preventDefault();
  };
  return (
    <div class="canvas" onKeyDown={frameKeys}>
      <svg ref={frame} role="group" aria-label={props.label} aria-describedby="canvas-keys">
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">
            <path d="M0 0 8 4 0 8z" class="tip" />
          </marker>
        </defs>
        <g ref={stage} class="stage">
          {view.boxes.filter((b) => b.open).map((b) => <Shape box={b} key={b.key} {...shapeProps(b)} />)}
          <g class="edges" aria-hidden="true">
            {layout.edges.map((e) => (
              <path
                key={`${e.from} ${e.to}`} d={e.d} marker-end="url(#tip)"
                class={e.from === props.selected || e.to === props.selected ? "edge near" : `edge ${byKey.get(e.to)?.phase ?? ""}`}
                stroke-width={Math.min(3.5, 1 + Math.log2(e.count) * 0.35)}
              />
            ))}
          </g>
          {view.boxes.filter((b) => !b.open).map((b) => <Shape box={b} key={b.key} {...shapeProps(b)} />)}
        </g>
      </svg>
      <div class="zoom" role="group" aria-label="Zoom">
        <button type="button" aria-label="Closer" title="Closer (+)" onClick={() => zoom(1.25)}>+</button>
        <button type="button" aria-label="Farther" title="Farther (-)" onClick={() => zoom(0.8)}>−</button>
        <button type="button" aria-label="All of it" title="All of it (0)" onClick={() => { moved.current = false; fit(); }}>⤢</button>
      </div>
      <p id="canvas-keys" class="hidden">
        Arrow keys go from box to box, Enter selects, O opens or closes a module, plus and minus zoom, zero shows all.
      </p>
      {view.hidden > 0 && <p class="note">{view.hidden} nodes of a very large group are left out here; the table has them.</p>}
    </div>
  );

  function shapeProps(b: Box) {
    return {
      at: layout.boxes.get(b.key)!, selected: b.key === props.selected, related: props.related.has(b.key), first: b.key === first,
      onSelect: props.onSelect, onOpen: toggle, onKey: keys,
    };
  }
}

function Shape(props: {
  box: Box; at: { x: number; y: number; w: number; h: number }; selected: boolean; related: boolean; first: boolean;
  onSelect: (b: Box) => void; onOpen: (b: Box) => void; onKey: (e: KeyboardEvent, b: Box) => void;
}) {
  const { box, at } = props;
  if (!at) return null;
  const marked = box.changed > 0 && !box.open;
  const said = [box.label, box.open ? "" : box.detail, marked ? `${Math.min(99, box.changed)} changed` : ""].filter(Boolean).join(" ");
  const name = [said, box.phase, box.group ? (box.open ? "open" : "closed") : ""];
  const kind = `box ${box.phase} ${box.group ? "group" : "node"} ${box.open ? "open" : ""} ${props.selected ? "selected" : ""} ${props.related ? "related" : ""} ${box.changed ? "changed" : ""}`;
  return (
    <g
      class={kind} role="button" tabindex={props.first ? 0 : -1} data-key={box.key} transform={`translate(${at.x} ${at.y})`}
      aria-label={name.filter(Boolean).join(", ")} aria-pressed={props.selected} aria-expanded={box.group ? box.open : undefined}
      onClick={() => props.onSelect(box)} onDblClick={() => box.group && props.onOpen(box)}
      onKeyDown={(e: KeyboardEvent) => props.onKey(e, box)}
    >
      <rect width={at.w} height={at.h} rx={box.group ? 8 : 5} />
      {box.open ? (
        <text x={14} y={21} class="label">{box.label}</text>
      ) : (
        <>
          <text x={12} y={box.detail ? 17 : 18} class="label">{box.label}</text>
          {" "}
          {box.detail && <text x={12} y={31} class="detail">{box.detail}</text>}
        </>
      )}
      {box.group && (
        <g class="toggle" transform={`translate(${at.w - 24} ${box.open ? 8 : (at.h - 18) / 2})`}
          onClick={(e: MouseEvent) => { e.stopPropagation(); props.onOpen(box); }}>
          <rect width={18} height={18} rx={4} />
          <path d={box.open ? "M5 9h8" : "M5 9h8M9 5v8"} />
        </g>
      )}
      {" "}
      {marked && <g class="mark" aria-hidden="true" transform={`translate(${at.w - 4} 0)`}><circle r={8} /><text y={3}>{box.changed > 99 ? "99" : box.changed}</text></g>}
    </g>
  );
}

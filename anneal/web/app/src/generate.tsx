// /g/MODEL: a text token by token, each with what else was likely and the time that it took.
import { useEffect, useState } from "preact/hooks";
import { follow, send, type Event, type Job } from "./api";
import { Chart } from "./chart";
import { when } from "./format";
import { remembered, title } from "./models";
import { go, link, put, type Route } from "./route";
import { isSnapshot } from "./snapshot";
import { Choice, Facts, Head, Live, Panel } from "./ui";

interface Token { event: string; id: number; text: string; chance: number; ms: number; likely: { text: string; chance: number }[]; phase: string; plan: number | null }
interface Prompt { event: string; prompt: string; device: string; adapter: string | null }

export function GenerateView({ route }: { route: Route }) {
  const id = route.query.get("job");
  const [job, setJob] = useState<Job | null>(null);
  const [tokens, setTokens] = useState<Token[]>([]);
  const [prompt, setPrompt] = useState<Prompt | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setTokens([]);
    setPrompt(null);
    setJob(null);
    if (!id) return;
    return follow(id, (events: Event[]) => {
      const found = events.filter((e) => e.event === "token") as unknown as Token[];
      if (found.length) setTokens((t) => [...t, ...found]);
      const begun = events.find((e) => e.event === "prompt");
      if (begun) setPrompt(begun as unknown as Prompt);
    }, setJob);
  }, [id]);
  const at = route.query.get("token") === null ? null : Number(route.query.get("token"));
  const chosen = at === null ? undefined : tokens[at];
  const submit = (e: SubmitEvent) => {
    e.preventDefault();
    setError("");
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const body = {
      kind: "sample", model: route.name, weights: form.get("weights") || null, device: form.get("device"), prompt: form.get("prompt"), greedy: form.get("greedy") === "on",
      max_tokens: Number(form.get("max_tokens")), top_k: Number(form.get("top_k")), temperature: Number(form.get("temperature")), seed: Number(form.get("seed")),
    };
    send<Job>("POST", "/api/jobs", body).then((made) => put({ job: made.id, token: null }), (x: Error) => setError(x.message));
  };
  const small = route.name !== "gpt2";
  const all = remembered();
  const learnt = [...(all?.jobs.filter((j) => j.kind === "train" && j.model === route.name && ["done", "stopped"].includes(j.state) && j.about.bundle !== false) ?? []).map((j): [string, string] => [j.id, `${j.state} ${when(j.created)}`]),
    ...(all?.uploads.filter((u) => u.kind === "safetensors") ?? []).map((u): [string, string] => [u.id, u.name])];
  const live = job && ["running", "queued", "paused"].includes(job.state);
  return (
    <>
      <Head title={`Generate with ${route.name}`} sub={small ? `${title(route.name)} goes on with a text, character by character, with the weights of a training.` : "GPT-2 small goes on with a text. The first time its weights are downloaded, 548 MB, if this machine may."}>
        {!isSnapshot() && <Choice label="Model" value={route.name} options={(all?.models.filter((m) => m.speaks) ?? []).map((m) => [m.name, m.name])} onChange={(m) => go(link("g", m))} />}
      </Head>
      <div class="training">
        <Panel title="Prompt">
          <form class="pad form" onSubmit={submit}>
            <label class="field wide"><span>Text to go on with</span><textarea name="prompt" rows={4} required={!small}>{(job?.about.prompt as string | undefined) ?? (small ? (route.name.startsWith("makemore") ? "an" : "ROMEO:") : "Hello, I am a tensor compiler, and")}</textarea></label>
            {small && <label class="field wide"><span>Weights</span><select name="weights">{learnt.map(([v, text]) => <option value={v}>{text}</option>)}<option value="">none: it has not learnt anything</option></select></label>}
            <label class="field"><span>Tokens</span><input name="max_tokens" type="number" min="1" max="1024" defaultValue="40" /></label>
            <label class="field"><span>Temperature</span><input name="temperature" type="number" min="0.05" step="0.05" defaultValue="1" /></label>
            <label class="field"><span>Top-k</span><input name="top_k" type="number" min="0" defaultValue="40" /></label>
            <label class="field"><span>Seed</span><input name="seed" type="number" min="0" defaultValue="0" /></label>
            <label class="field"><span>Device</span><select name="device"><option value="auto">auto</option><option value="cpu">cpu</option><option value="webgpu">webgpu</option></select></label>
            <label class="check"><input type="checkbox" name="greedy" /><span>Greedy</span></label>
            <button type="submit" class="primary" disabled={!!live}>Generate</button>
            {live && <button type="button" onClick={() => send("POST", `/api/jobs/${id}/stop`).catch((x: Error) => setError(x.message))}>Stop</button>}
          </form>
          {error && <p class="bad pad" role="alert">{error}</p>}
        </Panel>
        <div>
          <Panel title="Text" aside={job && <span class={`state ${job.state}`}>{job.state}</span>}>
            <div class="pad">
              <Live text={job ? `The text is ${job.state}, ${tokens.length} tokens.` : ""} />
              {job?.error && <pre class="bad" role="alert">{job.error}</pre>}
              {!id && <p class="faint">Each token can be selected: here stands what else was likely, and the kernels that made it.</p>}
              {live && !tokens.length && <p class="faint" role="status"><span class="spin" aria-hidden="true" /> reading the weights and compiling</p>}
              <p class="tokens">
                <span class="faint">{prompt?.prompt}</span>
                {tokens.map((t, i) => (
                  <><button type="button" class={`token c${Math.min(9, Math.floor(t.chance * 10))}`} aria-pressed={i === at} aria-label={`token ${i}, ${JSON.stringify(t.text)}, ${(t.chance * 100).toFixed(0)} percent`} onClick={() => put({ token: i === at ? null : i }, true)}>{t.text === "\n" ? "↵" : t.text}</button>{t.text === "\n" && <br />}</>
                ))}
              </p>
            </div>
          </Panel>
          {chosen && (
            <Panel title={`Token ${at}`}>
              <div class="pad">
                <Facts rows={[["token", JSON.stringify(chosen.text)], ["number", chosen.id], ["chance", `${(chosen.chance * 100).toFixed(2)} %`], ["time", `${chosen.ms.toFixed(1)} ms`], ["made by", chosen.plan === null || chosen.plan === undefined ? chosen.phase : live ? `${chosen.phase}; its kernels when the text has ended` : <a href={link("k", `job.${id}`, { plan: chosen.plan })}>the kernels of {chosen.phase}</a>]]} />
                <h3>What else was likely</h3>
                <ul class="likely">{chosen.likely.map((l) => <li><code>{JSON.stringify(l.text)}</code><meter min={0} max={1} value={l.chance} aria-label={`chance of ${JSON.stringify(l.text)}`} /><span>{(l.chance * 100).toFixed(1)} %</span></li>)}</ul>
              </div>
            </Panel>
          )}
          {tokens.length > 2 && <Panel title="Time"><div class="pad"><Chart title="Milliseconds a token" x={tokens.map((_, i) => i)} xLabel="token" series={[{ label: "ms", values: tokens.map((t) => t.ms), colour: "--gold" }]} log height={130} select={(i) => put({ token: i }, true)} /></div></Panel>}
        </div>
      </div>
    </>
  );
}

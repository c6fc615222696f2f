// The kinds of pages, by the name that model.json gives.
import type { Model } from "./anneal";
import { describe } from "./describe";
import { draw } from "./draw";
import { form } from "./form";
import { gpt2 } from "./gpt2";
import { spirals } from "./spirals";
import { write } from "./write";

export const KINDS: Record<string, (model: Model, main: HTMLElement) => Promise<void>> = { describe, draw, form, gpt2, spirals, write };

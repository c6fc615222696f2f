// The kinds of pages, by the name that model.json gives.
import type { Model } from "./anneal";
import { form } from "./form";

export const KINDS: Record<string, (model: Model, main: HTMLElement) => Promise<void>> = { form };

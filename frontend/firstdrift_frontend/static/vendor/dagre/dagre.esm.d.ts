// What the pages use of dagre.

export interface Node { x: number; y: number; width: number; height: number }
export interface Edge { points: { x: number; y: number }[]; weight?: number; minlen?: number }
export interface Label { width: number; height: number }

export class Graph {
  constructor(options?: { directed?: boolean; multigraph?: boolean; compound?: boolean });
  setGraph(label: object): this;
  graph(): Label;
  setDefaultEdgeLabel(label: () => object): this;
  setNode(name: string, label: { width: number; height: number }): this;
  setEdge(from: string, to: string, label?: { weight?: number; minlen?: number }): this;
  node(name: string): Node;
  edge(from: string, to: string): Edge | undefined;
}

export function layout(graph: Graph): void;

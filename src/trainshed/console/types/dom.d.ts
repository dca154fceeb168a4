// Arguments of `h` and `s` of dom.js. `Dom` is global.

declare namespace Dom {
  type Single = Node | string | number | null | undefined | false;

  /** Lists may hold lists; all of it comes in order. */
  type Child = Single | readonly Child[];

  /** By the name of the event. */
  type Listeners = { [Name in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[Name]) => void };

  /** Names that mean something else than the property of that name, and attributes. */
  interface Named {
    class?: string | null;
    for?: string;
    on?: Listeners;
    dataset?: Record<string, string>;
    style?: Record<string, string | number>;
    role?: string;
    list?: string;
    scope?: string;
    colspan?: string;
    [attribute: `${string}-${string}`]: string | null | undefined;
  }

  /** Of an element: those above, and any of its properties. */
  type Props<Element> = Named & { [Name in Exclude<keyof Element, keyof Named>]?: Element[Name] | null };

  /** Of an SVG element: attributes. */
  type SvgProps = Record<string, string | number>;
}

"""What firstdrift says to people: messages, and their texts in each language.

    Message.of("verdict.source", input=1.2e-7, output=0.4)  ──text_of(…, "zh")──▶  a sentence

A message is data from where it arises to the edge (terminal, page, JSON, report); a text is made there, and
nowhere else. The texts lie in `en/` and `zh/`, one file for each room, for people to read and to edit.
"""
